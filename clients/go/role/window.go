package role

// window accounts for the yields that an activation has sent and nobody has acknowledged yet.
//
// A window of 4 yields and a credit of 100 bytes, after an acknowledgement of ordinal 0:
//
//	ordinal   0      1    2
//	bytes     10     80   30        undelivered: 2 yields, 110 bytes: closed until ordinal 1 is acknowledged
//	          acked
type window struct {
	limit       int
	creditBytes uint64
	first       uint64
	sizes       []int
	undelivered uint64
}

// newWindow: yields below first were delivered before.
func newWindow(limit uint32, creditBytes, first uint64) window {
	return window{limit: max(1, int(limit)), creditBytes: creditBytes, first: first}
}

// isOpen while fewer yields than the limit are undelivered, and fewer bytes than the credit (one yield may go past it).
func (w *window) isOpen() bool {
	return len(w.sizes) == 0 || (len(w.sizes) < w.limit && w.undelivered < w.creditBytes)
}

// next is the ordinal of the next yield.
func (w *window) next() uint64 {
	return w.first + uint64(len(w.sizes))
}

func (w *window) sent(sizeBytes int) {
	w.sizes = append(w.sizes, sizeBytes)
	w.undelivered += uint64(sizeBytes)
}

// ack: everything below next is delivered. Repeats, and acknowledgements of what was never sent, change nothing more.
func (w *window) ack(next uint64) {
	for len(w.sizes) > 0 && w.first < next {
		w.undelivered -= uint64(w.sizes[0])
		w.sizes = w.sizes[1:]
		w.first++
	}
}
