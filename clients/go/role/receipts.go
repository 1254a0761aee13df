package role

const (
	receiptMessages = 64
	receiptBytes    = 1 << 20
)

// receipts counts the messages of the peer that have been taken in, and says when the peer must be told: it keeps what it
// has sent on a link until then, also for a replica that could not go on with it.
type receipts struct {
	count        uint64
	told         uint64
	untoldBytes  int
	isCountingOn bool
}

func (r *receipts) add(sizeBytes int) {
	r.count++
	r.untoldBytes += sizeBytes
}

// isDue: the peer must be told although there is nothing else to say.
func (r *receipts) isDue() bool {
	return r.isCountingOn && (r.count-r.told >= receiptMessages || r.untoldBytes >= receiptBytes)
}

// take gives the frame that tells the peer; nil when it knows.
func (r *receipts) take() []byte {
	if !r.isCountingOn || r.count == r.told {
		return nil
	}
	r.told, r.untoldBytes = r.count, 0
	return receiptFrame(r.count)
}
