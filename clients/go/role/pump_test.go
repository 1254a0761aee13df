package role

import (
	"bytes"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	rolev1 "github.com/omniflow-serving/omniflow/clients/go/gen/role/v1"

	"google.golang.org/protobuf/proto"
)

// written runs a pump and gives the sizes of the frames of each message. The test fails for what run returns.
func written(t *testing.T, p *pump) func() [][]int {
	t.Helper()
	var messages [][]int
	ended := make(chan error, 1)
	go func() {
		ended <- p.run(nil, func(frames [][]byte) error {
			var sizes []int
			for _, frame := range frames {
				sizes = append(sizes, len(frame))
			}
			messages = append(messages, sizes)
			return nil
		})
	}()
	return func() [][]int {
		p.close()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		return messages
	}
}

func TestPumpJoinsWhatIsQueued(t *testing.T) {
	p := newPump(time.Hour)
	for size := 1; size <= 3; size++ {
		p.send(make([]byte, size))
	}
	if messages := written(t, p)(); len(messages) != 1 || !slices.Equal(messages[0], []int{1, 2, 3}) {
		t.Errorf("messages: %v", messages)
	}
}

func TestPumpDividesWhatIsTooMuchForOneMessage(t *testing.T) {
	p := newPump(time.Hour)
	for _, size := range []int{joinedBytes - 1, 1, 1, 2 * joinedBytes, 5, 6} {
		p.put(make([]byte, size))
	}
	messages := written(t, p)()
	want := [][]int{{joinedBytes - 1, 1}, {1}, {2 * joinedBytes}, {5, 6}}
	if !slices.EqualFunc(messages, want, slices.Equal) {
		t.Errorf("messages: %v", messages)
	}
	if p.queuedBytes != 0 {
		t.Errorf("%d bytes are still counted", p.queuedBytes)
	}
}

func TestPumpWritesFramesThatOthersSendMeanwhileInOrder(t *testing.T) {
	p := newPump(time.Hour)
	var all []byte
	isWriting, goOn := make(chan struct{}), make(chan struct{})
	ended := make(chan error, 1)
	go func() {
		ended <- p.run(nil, func(frames [][]byte) error {
			all = append(all, bytes.Join(frames, nil)...)
			isWriting <- struct{}{}
			<-goOn
			return nil
		})
	}()
	p.send([]byte("a"))
	<-isWriting
	p.send([]byte("b"))
	p.send([]byte("c"))
	goOn <- struct{}{}
	<-isWriting
	p.close()
	goOn <- struct{}{}
	if err := <-ended; err != nil || string(all) != "abc" {
		t.Errorf("written: %q, %v", all, err)
	}
}

func TestPumpSaysThatItsQueueIsFull(t *testing.T) {
	p := newPump(time.Hour)
	p.limitBytes = 10
	p.put(make([]byte, 10))
	select {
	case <-p.full:
		t.Fatal("at its limit it is full")
	default:
	}
	p.put(make([]byte, 1))
	p.put(make([]byte, 1))
	<-p.full
}

func TestPumpEndsWithTheErrorOfItsWriter(t *testing.T) {
	p, broken := newPump(time.Hour), errors.New("broken")
	p.send([]byte("a"))
	if err := p.run(nil, func([][]byte) error { return broken }); !errors.Is(err, broken) {
		t.Errorf("it ends with %v", err)
	}
}

func TestPumpSendsAHeartbeatForEachSecondOfSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPump(time.Second)
		var at []time.Duration
		began := time.Now()
		gone := make(chan struct{})
		ended := make(chan error, 1)
		go func() {
			ended <- p.run(gone, func(frames [][]byte) error {
				if bytes.Equal(frames[0], heartbeatFrame) {
					at = append(at, time.Since(began))
				}
				return nil
			})
		}()
		time.Sleep(2500 * time.Millisecond)
		p.send([]byte("a")) // at 2.5 s: the next silence begins here
		time.Sleep(2 * time.Second)
		close(gone)
		<-ended
		want := []time.Duration{time.Second, 2 * time.Second, 3500 * time.Millisecond}
		if !slices.Equal(at, want) && !slices.Equal(at, append(want, 4500*time.Millisecond)) {
			t.Errorf("heartbeats at %v", at)
		}
	})
}

// told is what the frames say of messages that have been taken in.
func told(t *testing.T, frames [][]byte) uint64 {
	t.Helper()
	message := &rolev1.ExecuteResponse{}
	if err := proto.Unmarshal(bytes.Join(frames, nil), message); err != nil {
		t.Fatal(err)
	}
	return message.GetReceivedMessages()
}

func TestPumpTellsWithEveryMessageHowManyItHasTakenIn(t *testing.T) {
	p := newPump(time.Hour)
	p.countReceipts()
	for range 5 {
		p.receivedMessage(10)
	}
	if frames, _ := p.take(); frames != nil {
		t.Fatal("it says so without need")
	}
	p.put(acceptedFrame(1))
	if frames, _ := p.take(); told(t, frames) != 5 {
		t.Errorf("it tells of %d", told(t, frames))
	}
	p.put(acceptedFrame(2))
	if frames, _ := p.take(); told(t, frames) != 0 {
		t.Error("it tells twice")
	}
}

func TestPumpTellsOfManyMessagesAndOfLargeOnesByThemselves(t *testing.T) {
	for name, c := range map[string]struct{ count, size int }{"many": {receiptMessages, 1}, "large": {2, receiptBytes / 2}} {
		t.Run(name, func(t *testing.T) {
			p := newPump(time.Hour)
			p.countReceipts()
			for range c.count - 1 {
				p.receivedMessage(c.size)
			}
			if frames, _ := p.take(); frames != nil {
				t.Fatal("too early")
			}
			p.receivedMessage(c.size)
			if frames, _ := p.take(); told(t, frames) != uint64(c.count) {
				t.Errorf("it tells of %d", told(t, frames))
			}
		})
	}
}

func TestPumpOfAStreamThatIsNoLinkTellsNothing(t *testing.T) {
	p := newPump(time.Hour)
	for range 10 * receiptMessages {
		p.receivedMessage(receiptBytes)
	}
	if frames, _ := p.take(); frames != nil {
		t.Errorf("it tells of %d", told(t, frames))
	}
}
