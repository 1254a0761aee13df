package role

import (
	"strings"
	"testing"
	"time"

	rolev1 "github.com/omniflow-serving/omniflow/clients/go/gen/role/v1"

	"google.golang.org/protobuf/types/known/timestamppb"
)

func TestStartThatIsNotTakenInSaysWhy(t *testing.T) {
	h := newTestHost(t, echo)
	for name, c := range map[string]struct {
		change func(*rolev1.StartActivation)
		reason Reason
	}{
		"empty":             {func(s *rolev1.StartActivation) { s.Activation, s.Facets = nil, nil }, ReasonUnknownInterface},
		"unknown interface": {func(s *rolev1.StartActivation) { s.Activation.Interface = "test.ecko" }, ReasonUnknownInterface},
		"unknown group":     {func(s *rolev1.StartActivation) { s.Facets[0].InputGroup = "" }, ReasonUnknownField},
		"no inputs":         {func(s *rolev1.StartActivation) { s.Facets[0].Fields = nil }, ReasonMissingInput},
		"segment":           {func(s *rolev1.StartActivation) { s.Segment = &rolev1.Segment{} }, ReasonUnimplemented},
		"no time": {func(s *rolev1.StartActivation) {
			s.Deadline = &timestamppb.Timestamp{Nanos: -1}
		}, ReasonInvalidField},
		"past": {func(s *rolev1.StartActivation) {
			s.Deadline = timestamppb.New(time.Now().Add(-time.Hour))
			s.Activation.Interface = "test.echo"
		}, ReasonDeadlineExceeded},
	} {
		t.Run(name, func(t *testing.T) {
			control, _, _ := served(t, h)
			control.start(1, "test.echo", "a", c.change)
			failure := control.failure(1)
			if failure.reason != c.reason || failure.isRetryable {
				t.Errorf("it fails with %+v", failure)
			}
			if failure.isRefused != (name != "past") { // which is taken in, and ends at once
				t.Errorf("refused: %t", failure.isRefused)
			}
			control.start(2, "test.echo", "still serving")
			control.texts(2)
		})
	}
}

func TestUnknownInterfaceNamesThoseThatAreServed(t *testing.T) {
	c, _, _ := served(t, newTestHost(t, letters, echo))
	c.start(1, "test.ecko", "a")
	if message := c.failure(1).message; !strings.Contains(message, `"test.ecko"; it serves test.echo, test.letters`) {
		t.Errorf("the message is %q", message)
	}
}

func TestMoreThanTheReplicaTakesIsForAnother(t *testing.T) {
	ended := make(chan error, 2)
	h := newTestHost(t, waiting("test.waiting", ended))
	h.maxActivations = 2
	c, _, _ := served(t, h)
	for _, handle := range []uint64{1, 2, 3} {
		c.start(handle, "test.waiting", "")
	}
	if failure := c.failure(3); failure.reason != ReasonTooManyCalls || !failure.isRetryable || !failure.isRefused ||
		failure.retryAfter == 0 {
		t.Errorf("it fails with %+v", failure)
	}
}

func TestWorkOfASessionsEarlierOwnerIsRefused(t *testing.T) {
	c, _, _ := served(t, newTestHost(t, echo))
	c.start(1, "test.echo", "a", ofSession("s", 2))
	c.texts(1)
	c.start(2, "test.echo", "a", ofSession("s", 1))
	if failure := c.failure(2); failure.reason != ReasonStaleOwner || failure.isRetryable || !failure.isRefused {
		t.Errorf("it fails with %+v", failure)
	}
}

func TestCancelOfACallStopsItsActivationsAndThoseStillToCome(t *testing.T) {
	ended := make(chan error, 3)
	h := newTestHost(t, waiting("test.waiting", ended), echo)
	c, _, _ := served(t, h)
	for _, handle := range []uint64{1, 2} {
		c.start(handle, "test.waiting", "", ofCall("c"))
		c.begun(handle)
	}
	c.start(3, "test.waiting", "", ofCall("other"))
	c.begun(3)
	if count := h.cancelCall("c", "user left"); count != 2 {
		t.Errorf("%d activations were told", count)
	}
	for _, handle := range []uint64{1, 2} {
		if failure := c.failure(handle); failure.reason != ReasonCallCancelled || failure.message != "user left" {
			t.Errorf("handle %d fails with %+v", handle, failure)
		}
	}
	if count := h.cancelCall("c", ""); count != 0 {
		t.Errorf("%d activations were told twice", count)
	}
	c.start(4, "test.echo", "late", ofCall("c"))
	if results := c.finish(4); len(results) != 1 || !results[0].GetFailed().GetIsRefused() {
		t.Errorf("results of what was overtaken: %v", results)
	}
	if late := c.pending(3); late != 0 {
		t.Errorf("the other call has %d results", late)
	}
}

func TestCallThatHasEndedLeavesNothingRunning(t *testing.T) {
	ended := make(chan error, 1)
	h := newTestHost(t, waiting("test.waiting", ended), echo)
	c, _, _ := served(t, h)
	c.start(1, "test.waiting", "", ofCall("c"))
	c.begun(1)
	h.endCall("c")
	<-ended
	h.endCall("never seen")
	c.start(2, "test.echo", "a", ofCall("never seen"))
	c.texts(2)
}
