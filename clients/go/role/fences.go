package role

import "container/list"

// remembered is how many a replica remembers so that late messages change nothing. A cancel overtakes at most what is on
// its way on one stream, and a stale owner writes within its lease: minutes of traffic are enough.
const remembered = 16_384

// recent is a map that forgets the keys first that were set longest ago.
type recent[K comparable, V any] struct {
	limit int
	order *list.List // of recentEntry, the oldest first
	items map[K]*list.Element
}

type recentEntry[K comparable, V any] struct {
	key   K
	value V
}

func newRecent[K comparable, V any](limit int) *recent[K, V] {
	return &recent[K, V]{limit: limit, order: list.New(), items: make(map[K]*list.Element)}
}

// get is the value of a key, and whether it is remembered.
func (r *recent[K, V]) get(key K) (value V, isKnown bool) {
	element, isKnown := r.items[key]
	if !isKnown {
		return value, false
	}
	return element.Value.(recentEntry[K, V]).value, true
}

func (r *recent[K, V]) set(key K, value V) {
	if element, isKnown := r.items[key]; isKnown {
		element.Value = recentEntry[K, V]{key, value}
		r.order.MoveToBack(element)
		return
	}
	r.items[key] = r.order.PushBack(recentEntry[K, V]{key, value})
	if len(r.items) > r.limit {
		oldest := r.order.Remove(r.order.Front()).(recentEntry[K, V])
		delete(r.items, oldest.key)
	}
}

// fences are what a host remembers: calls of which a cancel has been heard, and the highest fence seen of each session.
type fences struct {
	cancelled *recent[string, struct{}]
	owners    *recent[sessionKey, uint64]
}

type sessionKey struct{ tenant, session string }

// fenceAge is that of a fence beside those that were seen of its session before.
type fenceAge int

const (
	fenceStale   fenceAge = iota // lower: its owner has been replaced
	fenceCurrent                 // the highest, or the first
	fenceNewer                   // higher: the owner before it has been replaced
)

func newFences() fences {
	return fences{
		cancelled: newRecent[string, struct{}](remembered),
		owners:    newRecent[sessionKey, uint64](remembered),
	}
}

func (f *fences) cancel(callID string) {
	f.cancelled.set(callID, struct{}{})
}

func (f *fences) isCancelled(callID string) bool {
	_, isKnown := f.cancelled.get(callID)
	return isKnown
}

// see remembers the fence of a session's owner, unless a higher one has been seen.
func (f *fences) see(session sessionKey, fence uint64) fenceAge {
	highest, isKnown := f.owners.get(session)
	if fence < highest {
		return fenceStale
	}
	f.owners.set(session, fence)
	if isKnown && fence > highest {
		return fenceNewer
	}
	return fenceCurrent
}
