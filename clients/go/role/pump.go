package role

import (
	"sync"
	"time"
)

const (
	// joinedBytes is how far frames are joined into one message; a larger frame goes in a message of its own.
	joinedBytes = 1 << 20
	// queueLimitBytes: windows keep the queue far below it; a peer that starts work and never reads ends its stream.
	queueLimitBytes = 512 << 20
)

// pump is the queue of a stream's results and its only writer. While one write is under way results queue up, and the
// next message carries all of them; an idle stream writes a single result without delay.
type pump struct {
	heartbeat  time.Duration
	limitBytes int
	wake       chan struct{}
	// full is closed when the queue has passed its limit.
	full chan struct{}

	mu          sync.Mutex
	frames      [][]byte
	queuedBytes int
	isFull      bool
	isClosed    bool
	received    receipts
}

// newPump: a pump that writes a heartbeat after so much silence.
func newPump(heartbeat time.Duration) *pump {
	return &pump{
		heartbeat:  heartbeat,
		limitBytes: queueLimitBytes,
		wake:       make(chan struct{}, 1),
		full:       make(chan struct{}),
	}
}

// put queues a frame without waking the writer, for callers that queue more before the next flush.
func (p *pump) put(frame []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.frames = append(p.frames, frame)
	p.queuedBytes += len(frame)
	if p.queuedBytes > p.limitBytes && !p.isFull {
		p.isFull = true
		close(p.full)
	}
}

// send queues a frame and wakes the writer.
func (p *pump) send(frame []byte) {
	p.put(frame)
	p.flush()
}

// flush wakes the writer.
func (p *pump) flush() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// drop forgets what is queued; a write that is under way goes on.
func (p *pump) drop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.frames, p.queuedBytes = nil, 0
}

// close lets run return when everything queued has been written.
func (p *pump) close() {
	p.mu.Lock()
	p.isClosed = true
	p.mu.Unlock()
	p.flush()
}

// countReceipts makes every message tell how many of the peer's have been taken in.
func (p *pump) countReceipts() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.received.isCountingOn = true
}

// receivedMessage: a message of the peer has been taken in.
func (p *pump) receivedMessage(sizeBytes int) {
	p.mu.Lock()
	p.received.add(sizeBytes)
	isDue := p.received.isDue()
	p.mu.Unlock()
	if isDue {
		p.flush()
	}
}

// run writes until the pump is closed or the stream done; it returns what write returns.
func (p *pump) run(done <-chan struct{}, write func([][]byte) error) error {
	silence := time.NewTimer(p.heartbeat)
	defer silence.Stop()
	for {
		frames, isClosed := p.take()
		if len(frames) > 0 {
			if err := write(frames); err != nil {
				return err
			}
			silence.Reset(p.heartbeat)
			continue
		}
		if isClosed {
			return nil
		}
		select {
		case <-p.wake:
		case <-silence.C:
			p.put(heartbeatFrame)
		case <-done:
			return nil
		}
	}
}

// take gives the frames of the next message; none when there is nothing to say.
func (p *pump) take() (frames [][]byte, isClosed bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.frames) == 0 && !p.received.isDue() {
		return nil, p.isClosed
	}
	frames = p.takeJoined()
	if receipt := p.received.take(); receipt != nil {
		frames = append(frames, receipt)
	}
	return frames, p.isClosed
}

func (p *pump) takeJoined() [][]byte {
	count, size := 0, 0
	for count < len(p.frames) && (count == 0 || size+len(p.frames[count]) <= joinedBytes) {
		size += len(p.frames[count])
		count++
	}
	taken := p.frames[:count:count]
	p.queuedBytes -= size
	p.frames = p.frames[count:]
	if len(p.frames) == 0 {
		p.frames = nil
	}
	return taken
}
