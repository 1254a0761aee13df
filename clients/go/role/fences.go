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

// admits remembers the fence of a session's owner; false for one that has been replaced by a higher one.
func (f *fences) admits(tenant, session string, fence uint64) bool {
	key := sessionKey{tenant, session}
	if highest, _ := f.owners.get(key); fence < highest {
		return false
	}
	f.owners.set(key, fence)
	return true
}
