package role

import (
	"errors"
	"log/slog"
	"os"
	"testing"
	"time"

	rolev1 "github.com/omniflow-serving/omniflow/clients/go/gen/role/v1"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
)

// patience is how long a test waits for what must come.
const patience = 10 * time.Second

func TestMain(m *testing.M) {
	slog.SetDefault(slog.New(slog.DiscardHandler))
	os.Exit(m.Run())
}

// stream is the control plane's end of Execute.
type stream interface {
	Send(*rolev1.ExecuteRequest) error
	Recv() (*rolev1.ExecuteResponse, error)
	CloseSend() error
}

// control is a control plane for one stream: it keeps results by handle until they are asked for.
type control struct {
	t        *testing.T
	stream   stream
	messages chan *rolev1.ExecuteResponse
	ended    chan error
	waiting  map[uint64][]*rolev1.ExecuteResult
	accepted map[uint64]bool
	loads    []load // what the replica has told, in order
	received uint64 // what the replica has said last
	count    int    // messages so far
}

// dialled says hello and takes the answer.
func dialled(t *testing.T, stream stream, hello *rolev1.ControlHello) (*control, *rolev1.ReplicaHello) {
	t.Helper()
	c := newControl(t, stream)
	c.send(&rolev1.ExecuteCommand{Command: &rolev1.ExecuteCommand_Hello{Hello: hello}})
	answer := c.next(0).GetHello()
	if answer == nil {
		t.Fatal("the first result is no hello")
	}
	return c, answer
}

func newControl(t *testing.T, stream stream) *control {
	c := &control{
		t:        t,
		stream:   stream,
		messages: make(chan *rolev1.ExecuteResponse, 1024),
		ended:    make(chan error, 1),
		waiting:  make(map[uint64][]*rolev1.ExecuteResult),
		accepted: make(map[uint64]bool),
	}
	go func() {
		for {
			message, err := stream.Recv()
			if err != nil {
				c.ended <- err
				return
			}
			c.messages <- message
		}
	}()
	return c
}

func (c *control) send(commands ...*rolev1.ExecuteCommand) {
	c.t.Helper()
	if err := c.stream.Send(&rolev1.ExecuteRequest{Commands: commands}); err != nil {
		c.t.Fatalf("send: %v", err)
	}
}

func (c *control) start(handle uint64, name, text string, options ...func(*rolev1.StartActivation)) {
	c.t.Helper()
	c.send(startCommand(handle, name, text, options...))
}

func startCommand(handle uint64, name, text string, options ...func(*rolev1.StartActivation)) *rolev1.ExecuteCommand {
	start := &rolev1.StartActivation{
		Activation:  &rolev1.ActivationRef{CallId: "call", Node: "node", Interface: name, ActivationId: handle, Attempt: 1},
		Facets:      []*rolev1.Facet{facet("main", map[string][]*Value{"text": {Text(text)}})},
		YieldWindow: 64,
		ByteCredit:  1 << 20,
	}
	for _, option := range options {
		option(start)
	}
	return &rolev1.ExecuteCommand{Handle: handle, Command: &rolev1.ExecuteCommand_Start{Start: start}}
}

func facet(group string, fields map[string][]*Value) *rolev1.Facet {
	message := &rolev1.Facet{InputGroup: group, Fields: make(map[string]*rolev1.FieldValues)}
	for name, values := range fields {
		items := &rolev1.FieldValues{}
		for _, value := range values {
			items.Values = append(items.Values, &rolev1.FieldValue{Value: value})
		}
		message.Fields[name] = items
	}
	return message
}

func ofCall(callID string) func(*rolev1.StartActivation) {
	return func(start *rolev1.StartActivation) { start.Activation.CallId = callID }
}

func ofSession(session string, fence uint64) func(*rolev1.StartActivation) {
	return func(start *rolev1.StartActivation) { start.Session, start.SessionFence = session, fence }
}

func withWindow(yields uint32) func(*rolev1.StartActivation) {
	return func(start *rolev1.StartActivation) { start.YieldWindow = yields }
}

func (c *control) ack(handle, next uint64) {
	c.t.Helper()
	c.send(&rolev1.ExecuteCommand{
		Handle:  handle,
		Command: &rolev1.ExecuteCommand_YieldAck{YieldAck: &rolev1.YieldAck{NextOrdinal: next}},
	})
}

func (c *control) cancel(handle uint64, reason string) {
	c.t.Helper()
	c.send(&rolev1.ExecuteCommand{
		Handle:  handle,
		Command: &rolev1.ExecuteCommand_Cancel{Cancel: &rolev1.CancelActivation{Reason: reason}},
	})
}

// next is the next result of a handle.
func (c *control) next(handle uint64) *rolev1.ExecuteResult {
	c.t.Helper()
	limit := time.After(patience)
	for len(c.waiting[handle]) == 0 {
		select {
		case message := <-c.messages:
			c.take(message)
		case <-limit:
			c.t.Fatalf("nothing came for handle %d", handle)
		}
	}
	first := c.waiting[handle][0]
	c.waiting[handle] = c.waiting[handle][1:]
	return first
}

func (c *control) take(message *rolev1.ExecuteResponse) {
	c.count++
	if message.GetReceivedMessages() != 0 {
		c.received = message.GetReceivedMessages()
	}
	for _, result := range message.GetResults() {
		if told := result.GetLoad(); told != nil {
			if result.GetHandle() != 0 {
				c.t.Errorf("a load came with the handle %d", result.GetHandle())
			}
			c.loads = append(c.loads, load{told.GetRunning(), told.GetWaiting()})
			continue
		}
		if result.GetAccepted() != nil {
			c.accepted[result.GetHandle()] = true
		}
		c.waiting[result.GetHandle()] = append(c.waiting[result.GetHandle()], result)
	}
}

// pending is how many results of a handle have come and were not taken.
func (c *control) pending(handle uint64) int {
	for {
		select {
		case message := <-c.messages:
			c.take(message)
		default:
			return len(c.waiting[handle])
		}
	}
}

// begun takes the first results of an activation that waits.
func (c *control) begun(handle uint64) {
	c.t.Helper()
	if accepted, began := c.next(handle), c.next(handle); accepted.GetAccepted() == nil || began.GetYield() == nil {
		c.t.Fatalf("handle %d began with %v and %v", handle, accepted, began)
	}
}

// finish is all results of a handle up to the last.
func (c *control) finish(handle uint64) []*rolev1.ExecuteResult {
	c.t.Helper()
	var found []*rolev1.ExecuteResult
	for {
		result := c.next(handle)
		found = append(found, result)
		if result.GetCompleted() != nil || result.GetFailed() != nil {
			return found
		}
	}
}

// texts is what a finished activation has yielded; the test fails when it did not end well.
func (c *control) texts(handle uint64) []string {
	c.t.Helper()
	var texts []string
	results := c.finish(handle)
	for _, result := range results {
		if yielded := result.GetYield(); yielded != nil {
			if yielded.GetOrdinal() != uint64(len(texts)) {
				c.t.Fatalf("yield %d came as number %d", yielded.GetOrdinal(), len(texts))
			}
			texts = append(texts, yielded.GetFields()["text"].GetText())
		}
	}
	if completed := results[len(results)-1].GetCompleted(); completed.GetYieldCount() != uint64(len(texts)) {
		c.t.Fatalf("the last result of %d yields is %v", len(texts), results[len(results)-1])
	}
	return texts
}

// failure is how an activation fails: refused when it was not accepted, and only then.
func (c *control) failure(handle uint64) stated {
	c.t.Helper()
	results := c.finish(handle)
	failed := results[len(results)-1].GetFailed()
	if failed == nil {
		c.t.Fatalf("handle %d ended with %v", handle, results[len(results)-1])
	}
	found := stated{
		message:     failed.GetStatus().GetMessage(),
		isRetryable: failed.GetIsRetryable(),
		isRefused:   failed.GetIsRefused(),
	}
	if found.isRefused == c.accepted[handle] {
		c.t.Errorf("handle %d is refused: %t, accepted: %t", handle, found.isRefused, c.accepted[handle])
	}
	for _, detail := range failed.GetStatus().GetDetails() {
		message, err := detail.UnmarshalNew()
		if err != nil {
			c.t.Fatal(err)
		}
		switch message := message.(type) {
		case *errdetails.ErrorInfo:
			found.reason, found.metadata = Reason(message.GetReason()), message.GetMetadata()
		case *errdetails.BadRequest:
			found.field = message.GetFieldViolations()[0].GetField()
		case *errdetails.RetryInfo:
			found.retryAfter = message.GetRetryDelay().AsDuration()
		}
	}
	if found.reason.Code() != codeOfStatus(failed) {
		c.t.Errorf("%s came with the code %d", found.reason, failed.GetStatus().GetCode())
	}
	return found
}

// end is what ended the stream.
func (c *control) end() error {
	c.t.Helper()
	for {
		select {
		case message := <-c.messages:
			c.take(message)
		case err := <-c.ended:
			c.pending(0)
			return err
		case <-time.After(patience):
			c.t.Fatal("the stream did not end")
		}
	}
}

// stated is a failure as the control plane sees it.
type stated struct {
	reason      Reason
	message     string
	field       string
	metadata    map[string]string
	retryAfter  time.Duration
	isRetryable bool
	isRefused   bool
}

// newTestHost has no limit of activations, and a cleanup grace of a second.
func newTestHost(t *testing.T, interfaces ...Interface) *host {
	t.Helper()
	h, err := newHost(interfaces, 0, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// served is a stream without a network to a host, with its hello; the channel has what serve returned.
func served(t *testing.T, h *host) (*control, *pipe, <-chan error) {
	t.Helper()
	c, p, ended, _ := servedWith(t, h, &rolev1.ControlHello{ReplicaIncarnationId: "life-1"})
	return c, p, ended
}

func servedWith(
	t *testing.T, h *host, hello *rolev1.ControlHello,
) (*control, *pipe, <-chan error, *rolev1.ReplicaHello) {
	t.Helper()
	s := newService(h, testReplica(), time.Second)
	p, ended := newPipe(), make(chan error, 1)
	go func() {
		err := s.serve(p)
		ended <- err
		close(p.gone)
	}()
	c, answer := dialled(t, p, hello)
	return c, p, ended, answer
}

func testReplica() *rolev1.Replica {
	return &rolev1.Replica{Role: "test", ReplicaId: "test-0", IncarnationId: "life-1", Endpoint: "unix:/nowhere"}
}

func codeOfStatus(failed *rolev1.ActivationFailed) codes.Code {
	return codes.Code(failed.GetStatus().GetCode())
}

// reasonIn is the reason of an *Error; empty for anything else.
func reasonIn(err error) Reason {
	var stated *Error
	if errors.As(err, &stated) {
		return stated.Reason
	}
	return ""
}

func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for !condition() {
		if time.Now().After(deadline) {
			t.Fatalf("%s did not come true", what)
		}
		time.Sleep(time.Millisecond)
	}
}
