package role

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	rolev1 "github.com/omniflow-serving/omniflow/clients/go/gen/role/v1"
)

func TestYieldsStopAtTheWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, p, _ := served(t, newTestHost(t, letters))
		c.start(1, "test.letters", "abcdefghij", withWindow(4))
		for _, step := range []struct{ ack, results uint64 }{{0, 5}, {2, 7}, {2, 7}, {3, 8}} { // with the acceptance
			c.ack(1, step.ack)
			synctest.Wait()
			if pending := c.pending(1); pending != int(step.results) {
				t.Errorf("after an acknowledgement of %d, %d results have come", step.ack, pending)
			}
		}
		c.ack(1, 7)
		if texts := c.texts(1); strings.Join(texts, "") != "abcdefghij" {
			t.Errorf("yields: %v", texts)
		}
		leave(c, p)
	})
}

func TestYieldsStopAtTheByteCredit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, p, _ := served(t, newTestHost(t, letters))
		c.start(1, "test.letters", "abcdef", func(start *rolev1.StartActivation) { start.ByteCredit = 1 })
		synctest.Wait()
		if pending := c.pending(1); pending != 2 {
			t.Errorf("%d results have come", pending)
		}
		for next := range uint64(5) {
			c.ack(1, next+1)
			synctest.Wait()
		}
		c.texts(1)
		leave(c, p)
	})
}

func TestFullWindowOfOneActivationStopsNoOther(t *testing.T) {
	c, _, _ := served(t, newTestHost(t, letters, echo))
	c.start(1, "test.letters", "abc", withWindow(1))
	c.start(2, "test.echo", "hi")
	if texts := c.texts(2); texts[0] != "hi" {
		t.Errorf("yields: %v", texts)
	}
}

func TestGoroutinesThatYieldAtTheSameTimeTakeTurns(t *testing.T) {
	const workers, each = 8, 1_000
	crowd := streaming("test.crowd", func(_ context.Context, _ *Activation, yield Yield) error {
		ended := make(chan error, workers)
		for range workers {
			go func() {
				for range each {
					if err := yield(Outputs{"text": Text("x")}); err != nil {
						ended <- err
						return
					}
				}
				ended <- nil
			}()
		}
		var err error
		for range workers {
			err = errors.Join(err, <-ended)
		}
		return err
	})
	c, _, _ := served(t, newTestHost(t, crowd))
	c.start(1, "test.crowd", "", withWindow(workers*each))
	if texts := c.texts(1); len(texts) != workers*each {
		t.Errorf("%d yields", len(texts))
	}
}

func TestAckOfAnInnerActivationOpensNoWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, p, _ := served(t, newTestHost(t, letters))
		c.start(1, "test.letters", "abc", withWindow(1))
		synctest.Wait()
		c.send(&rolev1.ExecuteCommand{Handle: 1, Command: &rolev1.ExecuteCommand_YieldAck{
			YieldAck: &rolev1.YieldAck{NextOrdinal: 1, InnerActivationId: 7},
		}})
		synctest.Wait()
		if pending := c.pending(1); pending != 2 {
			t.Errorf("%d results have come", pending)
		}
		leave(c, p)
	})
}

func TestAnswersTakeNoTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, p, _ := served(t, newTestHost(t, echo))
		began := time.Now()
		c.start(1, "test.ecko", "refused")
		c.failure(1)
		c.start(2, "test.echo", "done")
		c.texts(2)
		if took := time.Since(began); took != 0 {
			t.Errorf("they took %s", took)
		}
		leave(c, p)
	})
}

func TestStreamIsNeverSilentForMoreThanASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, p, _ := served(t, newTestHost(t, echo))
		time.Sleep(10*time.Second + time.Millisecond)
		if heartbeats := c.pending(0); heartbeats != 10 {
			t.Errorf("%d heartbeats in ten seconds", heartbeats)
		}
		leave(c, p)
	})
}
