package role

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	rolev1 "github.com/omniflow-serving/omniflow/clients/go/gen/role/v1"
)

func TestStreamThatBreaksTheRulesEndsWithTheReason(t *testing.T) {
	hello := func(life string) *rolev1.ExecuteCommand {
		return &rolev1.ExecuteCommand{Command: &rolev1.ExecuteCommand_Hello{
			Hello: &rolev1.ControlHello{ReplicaIncarnationId: life},
		}}
	}
	start := func(handle uint64) *rolev1.ExecuteCommand { return startCommand(handle, "test.waiting", "") }
	for name, c := range map[string]struct {
		commands []*rolev1.ExecuteCommand
		reason   Reason
	}{
		"nothing":          {nil, ReasonProtocolViolation},
		"no hello":         {[]*rolev1.ExecuteCommand{start(1)}, ReasonProtocolViolation},
		"empty command":    {[]*rolev1.ExecuteCommand{{}}, ReasonProtocolViolation},
		"other life":       {[]*rolev1.ExecuteCommand{hello("life-0")}, ReasonStaleEpoch},
		"no life":          {[]*rolev1.ExecuteCommand{hello("")}, ReasonStaleEpoch},
		"two hellos":       {[]*rolev1.ExecuteCommand{hello("life-1"), hello("life-1")}, ReasonProtocolViolation},
		"handle 0":         {[]*rolev1.ExecuteCommand{hello("life-1"), start(0)}, ReasonProtocolViolation},
		"handle that runs": {[]*rolev1.ExecuteCommand{hello("life-1"), start(1), start(1)}, ReasonProtocolViolation},
	} {
		t.Run(name, func(t *testing.T) {
			ended := make(chan error, 1)
			h := newTestHost(t, waiting("test.waiting", ended))
			p, result := newPipe(), make(chan error, 1)
			go func() { result <- newService(h, testReplica(), time.Hour).serve(p) }()
			if err := p.Send(&rolev1.ExecuteRequest{Commands: c.commands}); err != nil {
				t.Fatal(err)
			}
			if err := <-result; reasonIn(err) != c.reason {
				t.Errorf("it ends with %v", err)
			}
			eventually(t, "an empty host", func() bool { return h.load().GetRunning() == 0 })
		})
	}
}

func TestFramesThatAreNoneEndTheStream(t *testing.T) {
	p, result := newPipe(), make(chan error, 1)
	go func() { result <- newService(newTestHost(t, echo), testReplica(), time.Hour).serve(p) }()
	dialled(t, p, &rolev1.ControlHello{ReplicaIncarnationId: "life-1"})
	p.commands <- []byte{0xff}
	if err := <-result; reasonIn(err) != ReasonProtocolViolation {
		t.Errorf("it ends with %v", err)
	}
}

func TestPeerThatEndsBeforeItsHelloIsToldOfIt(t *testing.T) {
	p := newPipe()
	close(p.commands)
	if err := newService(newTestHost(t, echo), testReplica(), time.Hour).serve(p); reasonIn(err) != ReasonProtocolViolation {
		t.Errorf("it ends with %v", err)
	}
}

func TestCommandsBehindTheHelloAreTaken(t *testing.T) {
	p := newPipe()
	go func() { _ = newService(newTestHost(t, echo), testReplica(), time.Hour).serve(p) }()
	c := newControl(t, p)
	c.send(
		&rolev1.ExecuteCommand{Command: &rolev1.ExecuteCommand_Hello{
			Hello: &rolev1.ControlHello{ReplicaIncarnationId: "life-1"},
		}},
		startCommand(1, "test.echo", "a"),
	)
	if texts := c.texts(1); texts[0] != "a" {
		t.Errorf("yields: %v", texts)
	}
}

func TestPeerThatNeverReadsEndsItsStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newTestHost(t, letters)
		l := newLink(h, time.Hour)
		l.pump.limitBytes = 1_000
		p, result := newPipe(), make(chan error, 1)
		p.results = make(chan *rolev1.ExecuteResponse) // nobody reads
		go func() { result <- l.serve(p, nil) }()
		start := startCommand(1, "test.letters", strings.Repeat("x", 1_000), withWindow(1_000))
		if err := p.Send(&rolev1.ExecuteRequest{Commands: []*rolev1.ExecuteCommand{start}}); err != nil {
			t.Fatal(err)
		}
		if err := <-result; reasonIn(err) != ReasonBufferFull {
			t.Errorf("it ends with %v", err)
		}
		synctest.Wait()
		if load := h.load(); load.GetRunning() != 0 {
			t.Errorf("the load is %v", load)
		}
		close(p.gone)
	})
}
