package role

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"

	graph "github.com/omniflow-serving/omniflow/clients/go/gen/graph/v1"
	rolev1 "github.com/omniflow-serving/omniflow/clients/go/gen/role/v1"

	"google.golang.org/protobuf/proto"
)

// errLeft stands for a Run that neither returned nor panicked, such as one that called runtime.Goexit.
var errLeft = errors.New("the goroutine of the activation was ended")

// errEnded is the cause of a context whose activation has ended.
var errEnded = errors.New("the activation has ended")

// orderKey names what runs one at a time: tenant, session and node. The zero key is nobody's.
type orderKey struct{ tenant, session, node string }

// sink is where the results of one activation go: a handle of a stream.
type sink struct {
	handle uint64
	out    *pump
	// onEnd is called once, when the last result has been queued.
	onEnd func()
}

// execution is one activation that this replica has taken in.
//
//	run ──▶ yield(0) yield(1) …   each as soon as the window is open
//	    ──▶ completed | failed    exactly one of them, last; after that nothing more is reported
//
// A failure from outside (fail) is reported at once, and Run is told by its context; the place at the seat is free when
// Run has returned.
type execution struct {
	activation  *Activation
	declaration *Declaration
	key         orderKey
	ordinal     uint64
	sink        sink
	// onStop is called when a yield breaks the declaration; it stops the activation.
	onStop func(*Error)
	ctx    context.Context
	cancel context.CancelCauseFunc

	yielding sync.Mutex // held by the goroutine whose yield is under way
	opened   chan struct{}

	mu       sync.Mutex
	window   window
	hasEnded bool
}

// newExecution: an activation that has not begun. The error is for inputs that are not what the interface declares.
func newExecution(start *rolev1.StartActivation, declaration *Declaration, sink sink) (*execution, *Error) {
	if start.GetSegment() != nil {
		return nil, &Error{Reason: ReasonUnimplemented, Message: "this replica does not run segments"}
	}
	inputs, failure := readInputs(start, declaration)
	if failure != nil {
		return nil, failure
	}
	delivered, failure := readDelivered(start, declaration)
	if failure != nil {
		return nil, failure
	}
	activation := activationOf(start)
	activation.Inputs, activation.Delivered = inputs, delivered
	e := &execution{
		activation:  activation,
		declaration: declaration,
		sink:        sink,
		opened:      make(chan struct{}, 1),
		window:      newWindow(start.GetYieldWindow(), start.GetByteCredit(), uint64(len(delivered))),
	}
	if start.GetSession() != "" && start.GetSessionOrdinal() != 0 {
		e.key = orderKey{start.GetTenant(), start.GetSession(), activation.Node}
		e.ordinal = start.GetSessionOrdinal()
	}
	e.ctx, e.cancel = context.WithCancelCause(context.Background())
	if failure := e.watchDeadline(start); failure != nil {
		e.cancel(failure)
		return nil, failure
	}
	return e, nil
}

// watchDeadline makes the deadline of the start that of the context.
func (e *execution) watchDeadline(start *rolev1.StartActivation) *Error {
	deadline := start.GetDeadline()
	if deadline == nil {
		return nil
	}
	if err := deadline.CheckValid(); err != nil {
		return invalidField("start.deadline", "it is no time")
	}
	passed := &Error{Reason: ReasonDeadlineExceeded, Message: "the deadline of the call has passed"}
	cancel, release := e.cancel, context.CancelFunc(nil)
	e.ctx, release = context.WithDeadlineCause(e.ctx, deadline.AsTime(), passed)
	e.cancel = func(cause error) {
		cancel(cause) // before the release of the timer, which has no cause
		release()
	}
	return nil
}

func activationOf(start *rolev1.StartActivation) *Activation {
	ref, session := start.GetActivation(), sessionOf(start)
	return &Activation{
		CallID:      ref.GetCallId(),
		ID:          ref.GetActivationId(),
		Node:        ref.GetNode(),
		Attempt:     ref.GetAttempt(),
		Tenant:      session.tenant,
		Session:     session.session,
		Priority:    start.GetPriority(),
		Traceparent: start.GetTraceparent(),
		Sampling:    start.GetSampling(),
		Usage:       new(graph.Usage),
	}
}

// sessionOf names the session that an activation is started for; one without a name is nobody's.
func sessionOf(start *rolev1.StartActivation) sessionKey {
	tenant := start.GetTenant()
	if tenant == "" {
		tenant = "default"
	}
	return sessionKey{tenant, start.GetSession()}
}

// run goes to the end of the interface's Run. It never panics for what the interface does.
func (e *execution) run(target Interface) {
	if e.isEnded() {
		return // stopped in the moment in which its place was free
	}
	err := errLeft
	defer func() {
		if cause := recover(); cause != nil {
			err = fmt.Errorf("panic: %v\n%s", cause, debug.Stack())
		}
		e.conclude(err)
	}()
	if !e.declaration.IsStreaming && len(e.activation.Delivered) > 0 {
		err = nil // an earlier attempt has given its only output
		return
	}
	err = target.Run(e.ctx, e.activation, e.yield)
}

func (e *execution) conclude(err error) {
	if err == nil {
		e.complete()
	} else if failure := e.failureOf(err); e.fail(failure) && failure.Reason == ReasonInterfaceFailed {
		slog.Error("interface failed", append(e.names(), "error", err)...)
	}
	slog.Debug("activation has returned", append(e.names(), "context", context.Cause(e.ctx))...)
}

// failureOf is what the caller is told of an error of Run: what has ended the context comes first, then what Run states.
func (e *execution) failureOf(err error) *Error {
	for _, candidate := range []error{context.Cause(e.ctx), err} {
		// A nil *Error that was returned as an error is neither nil nor an error.
		if stated := (*Error)(nil); errors.As(candidate, &stated) && stated != nil {
			return stated
		}
	}
	return e.interfaceFailed()
}

// yield is the interface's Yield.
func (e *execution) yield(outputs Outputs) error {
	e.yielding.Lock()
	defer e.yielding.Unlock()
	if e.ctx.Err() != nil {
		return context.Cause(e.ctx)
	}
	frame, failure := e.encode(outputs)
	if failure != nil {
		e.onStop(failure)
		return failure
	}
	if err := e.windowOpens(); err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.hasEnded {
		return errEnded
	}
	e.window.sent(len(frame))
	e.sink.out.send(frame)
	return nil
}

func (e *execution) encode(outputs Outputs) ([]byte, *Error) {
	e.mu.Lock()
	ordinal := e.window.next()
	e.mu.Unlock()
	if ordinal > 0 && !e.declaration.IsStreaming {
		return nil, e.invalidYield("yielded twice, but does not declare itself streaming")
	}
	if failure := checkOutputs(outputs, e.declaration); failure != nil {
		return nil, failure
	}
	frame, err := yieldFrame(e.sink.handle, ordinal, outputs)
	if err != nil {
		return nil, e.invalidYield("gave a text that is no UTF-8")
	}
	if len(frame) > maxYieldBytes {
		return nil, e.invalidYield(fmt.Sprintf(
			"gave a yield of %d bytes, at most %d are sent; give it in several yields", len(frame), maxYieldBytes))
	}
	return frame, nil
}

func (e *execution) windowOpens() error {
	for {
		e.mu.Lock()
		isOpen := e.window.isOpen()
		e.mu.Unlock()
		if isOpen {
			return nil
		}
		select {
		case <-e.opened:
		case <-e.ctx.Done():
			return context.Cause(e.ctx)
		}
	}
}

// ack: yields below the ordinal are delivered.
func (e *execution) ack(next uint64) {
	e.mu.Lock()
	e.window.ack(next)
	e.mu.Unlock()
	select {
	case e.opened <- struct{}{}:
	default:
	}
}

func (e *execution) complete() {
	e.finish(errEnded, func() []byte {
		completed := &rolev1.ActivationCompleted{
			YieldCount:   e.window.next(),
			FinishReason: e.activation.FinishReason,
		}
		if given := e.activation.Usage; proto.Size(given) > 0 {
			completed.Usage = given
		}
		return completedFrame(e.sink.handle, completed)
	})
}

// fail reports a failure and ends the context; false when the activation had ended before.
func (e *execution) fail(failure *Error) bool {
	return e.finish(failure, func() []byte { return failedFrame(e.sink.handle, failure) })
}

// finish queues the last result, once.
func (e *execution) finish(cause error, last func() []byte) bool {
	e.mu.Lock()
	if e.hasEnded {
		e.mu.Unlock()
		return false
	}
	e.hasEnded = true
	e.sink.out.send(last())
	e.mu.Unlock()
	e.cancel(cause) // whatever still runs has nobody to work for
	e.sink.onEnd()
	return true
}

func (e *execution) isEnded() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.hasEnded
}

func (e *execution) interfaceFailed() *Error {
	return &Error{
		Reason: ReasonInterfaceFailed,
		Message: fmt.Sprintf(
			"interface %s of node %s failed; the log of the process that ran it has the details under activation %d of call %s",
			e.declaration.Name, e.activation.Node, e.activation.ID, e.activation.CallID),
		Metadata: map[string]string{"interface": e.declaration.Name, "node": e.activation.Node},
	}
}

func (e *execution) invalidYield(what string) *Error {
	return &Error{
		Reason:   ReasonInvalidOutput,
		Message:  fmt.Sprintf("interface %s %s", e.declaration.Name, what),
		Metadata: map[string]string{"interface": e.declaration.Name, "node": e.activation.Node},
	}
}

// names are what a log line says of the activation.
func (e *execution) names() []any {
	return []any{
		"interface", e.declaration.Name, "node", e.activation.Node,
		"call", e.activation.CallID, "activation", e.activation.ID,
	}
}
