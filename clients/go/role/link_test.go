package role

import (
	"testing"
	"time"

	rolev1 "github.com/omniflow-serving/omniflow/clients/go/gen/role/v1"
)

func TestLinkIsNotResumedAndSaysSo(t *testing.T) {
	_, _, _, answer := servedWith(t, newTestHost(t, echo), &rolev1.ControlHello{
		ReplicaIncarnationId: "life-1", LinkId: "link", IsResuming: true, ReceivedMessages: 7,
	})
	if answer.GetIsResumed() || answer.GetReceivedMessages() != 0 || answer.GetReplica().GetReplicaId() != "test-0" {
		t.Errorf("the hello is %v", answer)
	}
}

func TestLinkIsToldHowManyMessagesHaveBeenTakenIn(t *testing.T) {
	c, _, _, _ := servedWith(t, newTestHost(t, echo), &rolev1.ControlHello{ReplicaIncarnationId: "life-1", LinkId: "link"})
	for handle := range uint64(3) {
		c.start(handle+1, "test.echo", "a")
		c.texts(handle + 1)
	}
	if c.received != 3 {
		t.Errorf("it has been told of %d", c.received)
	}
}

func TestLinkThatGoesOnWithAnotherStreamLosesWhatRan(t *testing.T) {
	ended := make(chan error, 1)
	h := newTestHost(t, waiting("test.waiting", ended), echo)
	s := newService(h, testReplica(), time.Hour)
	hello := &rolev1.ControlHello{ReplicaIncarnationId: "life-1", LinkId: "link"}
	first, result := newPipe(), make(chan error, 1)
	go func() { result <- s.serve(first) }()
	c, _ := dialled(t, first, hello)
	c.start(1, "test.waiting", "")
	c.begun(1)
	second := newPipe()
	go func() { _ = s.serve(second) }()
	hello.IsResuming = true
	again, answer := dialled(t, second, hello)
	if answer.GetIsResumed() {
		t.Error("it claims to go on")
	}
	if err := <-result; reasonIn(err) != ReasonStaleEpoch {
		t.Errorf("the first stream ended with %v", err)
	}
	if cause := <-ended; reasonIn(cause) != ReasonCallCancelled {
		t.Errorf("the cause is %v", cause)
	}
	again.start(1, "test.echo", "a")
	again.texts(1)
}
