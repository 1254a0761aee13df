package role

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	rolev1 "github.com/omniflow-serving/omniflow/clients/go/gen/role/v1"
)

// host has the interfaces of a role process, and the activations that run and wait at them.
//
//	admit ─▶ refused
//	     └─▶ admitted ─▶ launch ─▶ waiting ─▶ running ─▶ left         at the seat of its interface
//	                                  └──── stop ────▶ left         the failure is reported before the cleanup
//
// It knows nothing of gRPC: links hand in starts, each with the pump that takes the results.
type host struct {
	maxActivations int
	cleanupGrace   time.Duration

	mu         sync.Mutex
	seats      map[string]*seat
	executions map[*execution]struct{}
	fences     fences
	isDraining bool
	idle       chan struct{} // closed when the host drains and has nothing left
}

// newHost gives INVALID_CONFIG for an interface without a name, or given twice.
func newHost(interfaces []Interface, maxActivations int, cleanupGrace time.Duration) (*host, error) {
	h := &host{
		maxActivations: maxActivations,
		cleanupGrace:   cleanupGrace,
		seats:          make(map[string]*seat),
		executions:     make(map[*execution]struct{}),
		fences:         newFences(),
		idle:           make(chan struct{}),
	}
	for _, target := range interfaces {
		made := newSeat(target)
		name := made.declaration.Name
		if name == "" {
			return nil, &Error{Reason: ReasonInvalidConfig, Message: fmt.Sprintf("%T declares no name", target)}
		}
		if h.seats[name] != nil {
			return nil, &Error{Reason: ReasonInvalidConfig, Message: fmt.Sprintf("interface %s is given twice", name)}
		}
		h.seats[name] = made
	}
	return h, nil
}

// names of the interfaces, in order.
func (h *host) names() []string {
	var names []string
	for name := range h.seats {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// admit takes an activation in and reports so, or says why not. It begins with launch. The first start under a newer fence
// of a session ends what the session's older owners have started, also when it is refused.
func (h *host) admit(start *rolev1.StartActivation, sink sink) (*execution, *Error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if failure := h.refusal(start); failure != nil {
		return nil, failure
	}
	place := h.seats[start.GetActivation().GetInterface()]
	e, failure := newExecution(start, &place.declaration, sink)
	if failure != nil {
		return nil, failure
	}
	e.onStop = func(failure *Error) { h.stop(e, failure) }
	sink.out.put(acceptedFrame(sink.handle)) // before anybody else can find it, and report its end
	h.executions[e] = struct{}{}
	return e, nil
}

// launch lets an admitted activation wait for its place, and run. One that was stopped meanwhile is left alone.
func (h *host) launch(e *execution) {
	h.mu.Lock()
	if _, isHere := h.executions[e]; isHere {
		place := h.seats[e.declaration.Name]
		place.waiting = append(place.waiting, e)
		h.fill(place)
	}
	h.mu.Unlock()
	context.AfterFunc(e.ctx, func() { // the deadline; whatever else ends the context has been reported before
		if failure, isStated := context.Cause(e.ctx).(*Error); isStated {
			h.stop(e, failure)
		}
	})
}

// stop reports a failure at once, then lets the activation clean up; false when it had ended before.
func (h *host) stop(e *execution, failure *Error) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.halt(e, failure)
}

// cancelCall stops a call's activations, and those of it that arrive later; it returns how many were told to stop.
func (h *host) cancelCall(callID, reason string) int {
	if reason == "" {
		reason = "the call was cancelled"
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.fences.cancel(callID)
	count := 0
	for _, e := range h.of(callID) {
		if h.halt(e, cancelled(reason)) {
			count++
		}
	}
	return count
}

// endCall: the call has had its terminal event, and what still runs of it has nobody to work for.
func (h *host) endCall(callID string) {
	h.mu.Lock()
	isRunning := len(h.of(callID)) > 0
	h.mu.Unlock()
	if isRunning {
		h.cancelCall(callID, "the call has ended")
	}
}

// stopAll stops everything.
func (h *host) stopAll(failure *Error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for e := range h.executions {
		h.halt(e, failure)
	}
}

// drain takes nothing in any more. The channel is closed when nothing runs or waits.
func (h *host) drain() <-chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.isDraining {
		h.isDraining = true
		h.noteIdle()
	}
	return h.idle
}

// state as replicas report it.
func (h *host) state() rolev1.ReplicaState {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.isDraining {
		return rolev1.ReplicaState_REPLICA_STATE_DRAINING
	}
	return rolev1.ReplicaState_REPLICA_STATE_READY
}

// load as replicas report it.
func (h *host) load() *rolev1.ReplicaLoad {
	h.mu.Lock()
	defer h.mu.Unlock()
	load := &rolev1.ReplicaLoad{}
	for _, place := range h.seats {
		load.Running += uint32(len(place.running))
		load.Waiting += uint32(len(place.waiting))
	}
	return load
}

// refusal says why an activation is not taken in; nil when it is. The lock is held, here and below.
func (h *host) refusal(start *rolev1.StartActivation) *Error {
	ref := start.GetActivation()
	switch {
	case h.isDraining:
		return &Error{Reason: ReasonDraining, Message: "the replica is shutting down"}
	case h.seats[ref.GetInterface()] == nil:
		return &Error{Reason: ReasonUnknownInterface, Message: fmt.Sprintf(
			"this replica does not serve %q; it serves %s", ref.GetInterface(), strings.Join(h.names(), ", "))}
	case h.fences.isCancelled(ref.GetCallId()):
		return cancelled("the call was cancelled")
	case start.GetSession() != "" && h.isStale(start):
		return newerOwner()
	case h.maxActivations > 0 && len(h.executions) >= h.maxActivations:
		return &Error{
			Reason:     ReasonTooManyCalls,
			Message:    fmt.Sprintf("the replica has %d activations, and takes no more", h.maxActivations),
			RetryAfter: 100 * time.Millisecond,
		}
	default:
		return nil
	}
}

// isStale says whether the session has a newer owner than the one that starts this. What an older one has started ends.
func (h *host) isStale(start *rolev1.StartActivation) bool {
	session := sessionOf(start)
	age := h.fences.see(session, start.GetSessionFence())
	if age == fenceNewer {
		h.endSession(session)
	}
	return age == fenceStale
}

func (h *host) endSession(session sessionKey) {
	for e := range h.executions { // those that leave meanwhile are not met again
		if (sessionKey{e.activation.Tenant, e.activation.Session}) == session {
			h.halt(e, newerOwner())
		}
	}
}

// halt is what stop does. It waits for nobody: what it reports is queued, and whoever holds the lock of an execution, a link
// or a pump never asks for that of the host.
func (h *host) halt(e *execution, failure *Error) bool {
	if !e.fail(failure) {
		return false
	}
	place := h.seats[e.declaration.Name]
	if _, isRunning := place.running[e]; !isRunning {
		h.leave(e)
		return true
	}
	time.AfterFunc(h.cleanupGrace, func() { h.evict(e) })
	return true
}

func (h *host) of(callID string) []*execution {
	var found []*execution
	for e := range h.executions {
		if e.activation.CallID == callID {
			found = append(found, e)
		}
	}
	return found
}

func (h *host) fill(place *seat) {
	for next := place.takeNext(); next != nil; next = place.takeNext() {
		go h.run(place.target, next)
	}
}

func (h *host) run(target Interface, e *execution) {
	defer func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.leave(e)
	}()
	e.run(target)
}

// leave forgets an execution. Repeats change nothing.
func (h *host) leave(e *execution) {
	if _, isHere := h.executions[e]; !isHere {
		return
	}
	delete(h.executions, e)
	place := h.seats[e.declaration.Name]
	place.leave(e)
	h.fill(place)
	h.noteIdle()
}

// evict gives the place of a stopped activation away that still cleans up.
func (h *host) evict(e *execution) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, isHere := h.executions[e]; isHere {
		slog.Warn("an activation still runs after it was stopped; its place is given away", e.names()...)
		h.leave(e)
	}
}

func (h *host) noteIdle() {
	if h.isDraining && len(h.executions) == 0 {
		select {
		case <-h.idle:
		default:
			close(h.idle)
		}
	}
}

func cancelled(reason string) *Error {
	return &Error{Reason: ReasonCallCancelled, Message: reason}
}

func newerOwner() *Error {
	return &Error{Reason: ReasonStaleOwner, Message: "the session has a newer owner"}
}
