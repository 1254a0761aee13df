package role

import (
	"testing"

	rolev1 "github.com/omniflow-serving/omniflow/clients/go/gen/role/v1"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// FuzzFrame gives a stream that has said hello a frame of any bytes. Whatever it is, the process goes on, and every handle
// that is started in it gets exactly one last result, or the stream ends with a reason.
func FuzzFrame(f *testing.F) {
	for _, command := range []*rolev1.ExecuteCommand{
		startCommand(1, "test.echo", "hi"),
		startCommand(1, "test.ecko", "hi"),
		startCommand(0, "test.echo", "hi"),
		startCommand(1, "test.letters", "abc", withWindow(0)),
		startCommand(1, "test.echo", "hi", func(s *rolev1.StartActivation) { s.Activation = nil }),
		startCommand(1, "test.echo", "hi", func(s *rolev1.StartActivation) { s.Facets = nil }),
		startCommand(1, "test.echo", "hi", func(s *rolev1.StartActivation) { s.Facets = append(s.Facets, &rolev1.Facet{}) }),
		startCommand(1, "test.echo", "hi", func(s *rolev1.StartActivation) { s.Segment = &rolev1.Segment{} }),
		startCommand(1, "test.echo", "hi", func(s *rolev1.StartActivation) { s.Deadline = &timestamppb.Timestamp{Seconds: 1} }),
		startCommand(1, "test.echo", "hi", func(s *rolev1.StartActivation) {
			s.Session, s.SessionOrdinal, s.SessionFence = "s", 1, 1
			s.DeliveredYields = []*rolev1.ActivationYield{{Fields: map[string]*Value{"text": tensor(remote())}}}
		}),
		{Handle: 1, Command: &rolev1.ExecuteCommand_YieldAck{}},
		{Handle: 1, Command: &rolev1.ExecuteCommand_Cancel{}},
		{Command: &rolev1.ExecuteCommand_Hello{}},
		{},
	} {
		frame, err := proto.Marshal(&rolev1.ExecuteRequest{Commands: []*rolev1.ExecuteCommand{command, command}})
		if err != nil {
			f.Fatal(err)
		}
		f.Add(frame)
	}
	f.Add([]byte{0xff})
	f.Fuzz(func(t *testing.T, frame []byte) {
		h := newTestHost(t, echo, letters)
		c, p, ended := served(t, h)
		p.commands <- frame
		if err := p.CloseSend(); err != nil {
			t.Fatal(err)
		}
		err := <-ended
		if err != nil && reasonIn(err) != ReasonProtocolViolation {
			t.Errorf("the stream ended with %v", err)
		}
		eventually(t, "an empty host", func() bool { return h.load().GetRunning() == 0 && h.load().GetWaiting() == 0 })
		if err == nil {
			checkLastResults(t, c, frame)
		}
	})
}

func checkLastResults(t *testing.T, c *control, frame []byte) {
	t.Helper()
	var request rolev1.ExecuteRequest
	if err := proto.Unmarshal(frame, &request); err != nil {
		t.Fatalf("the stream ended well after a frame that is none: %v", err)
	}
	started := make(map[uint64]int)
	for _, command := range request.GetCommands() {
		if _, isStart := command.GetCommand().(*rolev1.ExecuteCommand_Start); isStart {
			started[command.GetHandle()]++
		}
	}
	<-c.ended
	c.pending(0)
	for handle, count := range started {
		last := 0
		for _, result := range c.waiting[handle] {
			if result.GetCompleted() != nil || result.GetFailed() != nil {
				last++
			}
		}
		if last != count {
			t.Errorf("handle %d was started %d times and has %d last results", handle, count, last)
		}
	}
}
