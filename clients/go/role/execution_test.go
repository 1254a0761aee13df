package role

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	rolev1 "github.com/omniflow-serving/omniflow/clients/go/gen/role/v1"
)

func TestActivationYieldsInOrderAndCompletes(t *testing.T) {
	c, _, _ := served(t, newTestHost(t, echo, letters))
	c.start(1, "test.echo", "hi")
	results := c.finish(1)
	if results[0].GetAccepted() == nil || len(results) != 3 {
		t.Errorf("results: %v", results)
	}
	c.start(2, "test.letters", "abc")
	if texts := c.texts(2); !slices.Equal(texts, []string{"a", "b", "c"}) {
		t.Errorf("yields: %v", texts)
	}
}

func TestManyActivationsShareAStream(t *testing.T) {
	c, _, _ := served(t, newTestHost(t, letters))
	var commands []*rolev1.ExecuteCommand
	for handle := range uint64(50) {
		commands = append(commands, startCommand(handle+1, "test.letters", fmt.Sprintf("%03d", handle)))
	}
	c.send(commands...)
	for handle := range uint64(50) {
		if joined := strings.Join(c.texts(handle+1), ""); joined != fmt.Sprintf("%03d", handle) {
			t.Errorf("handle %d gave %q", handle+1, joined)
		}
	}
}

func TestActivationKnowsItsCall(t *testing.T) {
	seen := make(chan *Activation, 1)
	looks := streaming("test.looks", func(_ context.Context, activation *Activation, _ Yield) error {
		activation.Usage.OutputTokens = 7
		seen <- activation
		return nil
	})
	c, _, _ := served(t, newTestHost(t, looks))
	c.start(5, "test.looks", "hi", func(start *rolev1.StartActivation) {
		start.Session, start.Priority, start.Traceparent = "s", 3, "00-1-2-01"
	})
	results := c.finish(5)
	if tokens := results[len(results)-1].GetCompleted().GetUsage().GetOutputTokens(); tokens != 7 {
		t.Errorf("usage of %d tokens", tokens)
	}
	a := <-seen
	if a.CallID != "call" || a.ID != 5 || a.Node != "node" || a.Attempt != 1 || a.Tenant != "default" ||
		a.Session != "s" || a.Priority != 3 || a.Traceparent != "00-1-2-01" {
		t.Errorf("it knows %+v", a)
	}
}

func TestAttemptThatContinuesBeginsAfterWhatWasDelivered(t *testing.T) {
	rest := streaming("test.rest", func(_ context.Context, activation *Activation, yield Yield) error {
		for _, letter := range activation.Inputs.Text("text")[len(activation.Delivered):] {
			if err := yield(Outputs{"text": Text(string(letter))}); err != nil {
				return err
			}
		}
		return nil
	})
	c, _, _ := served(t, newTestHost(t, rest))
	c.start(1, "test.rest", "abcd", func(start *rolev1.StartActivation) {
		for ordinal, text := range []string{"a", "b"} {
			start.DeliveredYields = append(start.DeliveredYields, &rolev1.ActivationYield{
				Ordinal: uint64(ordinal), Fields: map[string]*Value{"text": Text(text)},
			})
		}
	})
	results := c.finish(1)
	if ordinal := results[1].GetYield().GetOrdinal(); ordinal != 2 {
		t.Errorf("the first yield is %d", ordinal)
	}
	if count := results[len(results)-1].GetCompleted().GetYieldCount(); count != 4 {
		t.Errorf("%d yields are counted", count)
	}
}

func TestOnlyOutputThatWasDeliveredIsNotGivenAgain(t *testing.T) {
	once := echo
	once.declaration.IsStreaming = false
	c, _, _ := served(t, newTestHost(t, once))
	c.start(1, "test.echo", "a", func(start *rolev1.StartActivation) {
		start.DeliveredYields = []*rolev1.ActivationYield{{Fields: map[string]*Value{"text": Text("a")}}}
	})
	results := c.finish(1)
	if len(results) != 2 || results[1].GetCompleted().GetYieldCount() != 1 {
		t.Errorf("results: %v", results)
	}
}
