package role

import (
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	rolev1 "github.com/omniflow-serving/omniflow/clients/go/gen/role/v1"

	"google.golang.org/protobuf/proto"
)

// flushTime is for what is queued when a stream ends; a peer that does not read loses it.
const flushTime = 2 * time.Second

const streamEnded = "the stream of the control plane ended"

// link is one Execute stream of one control plane: commands in, results out, the load while it changes, a heartbeat while it
// is silent. When it ends, every activation that it started is cancelled, whatever the hello said: a link does not outlive
// its stream here.
//
//	reader:  frame ─▶ hello | start | yield_ack | cancel | heartbeat      handled where it is read
//	writer:  everything that is queued ─▶ one message
type link struct {
	host      *host
	pump      *pump
	heartbeat time.Duration
	// superseded is closed when the control plane goes on with another stream.
	superseded chan struct{}

	mu         sync.Mutex
	executions map[uint64]*execution
	told       load
	hasEnded   bool
}

func newLink(host *host, heartbeat time.Duration) *link {
	return &link{
		host:       host,
		pump:       newPump(heartbeat),
		heartbeat:  heartbeat,
		superseded: make(chan struct{}),
		executions: make(map[uint64]*execution),
	}
}

// serve goes on until the peer ends the stream, or the pump is closed. The error is what the peer is told; commands are
// what came with the hello.
func (l *link) serve(stream transport, commands []*rolev1.ExecuteCommand) error {
	reading, writing, ended := make(chan error, 1), make(chan error, 1), make(chan struct{})
	defer close(ended)
	go l.reportLoads(ended)
	go func() { writing <- l.pump.run(stream.done(), stream.send) }()
	go func() { reading <- l.readAll(stream, commands) }()
	var err error
	select {
	case err = <-reading:
	case err = <-writing:
		l.end()
		return err
	case <-l.pump.full:
		err = &Error{Reason: ReasonBufferFull, Message: "too many results wait, and the peer does not read"}
	case <-l.superseded:
		err = &Error{Reason: ReasonStaleEpoch, Message: "the link goes on with another stream"}
	}
	l.end()
	if err != nil {
		l.pump.drop() // a peer that broke the rules hears its error next; any other hears all that is queued
	}
	l.pump.close()
	select {
	case <-writing:
	case <-time.After(flushTime):
	}
	return err
}

// end stops what still runs of the stream, and lets nothing begin any more.
func (l *link) end() {
	l.mu.Lock()
	l.hasEnded = true
	left := make([]*execution, 0, len(l.executions))
	for _, e := range l.executions {
		left = append(left, e)
	}
	l.mu.Unlock()
	for _, e := range left {
		l.host.stop(e, cancelled(streamEnded))
	}
}

func (l *link) readAll(stream transport, commands []*rolev1.ExecuteCommand) error {
	for {
		if err := l.handleAll(commands); err != nil {
			return err
		}
		frame, err := stream.receive()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		l.pump.receivedMessage(len(frame))
		if commands, err = parse(frame); err != nil {
			return err
		}
	}
}

func (l *link) handleAll(commands []*rolev1.ExecuteCommand) error {
	for _, command := range commands {
		if err := l.handle(command); err != nil {
			return err
		}
	}
	l.pump.flush() // acceptances, with whatever is there to travel with them
	return nil
}

func (l *link) handle(command *rolev1.ExecuteCommand) error {
	switch kind := command.GetCommand().(type) {
	case *rolev1.ExecuteCommand_Start:
		return l.start(command.GetHandle(), kind.Start)
	case *rolev1.ExecuteCommand_YieldAck:
		// Without an execution it has ended, and the command is late; with an inner activation it is about a segment.
		if e := l.find(command.GetHandle()); e != nil && kind.YieldAck.GetInnerActivationId() == 0 {
			e.ack(kind.YieldAck.GetNextOrdinal())
		}
	case *rolev1.ExecuteCommand_Cancel:
		if e := l.find(command.GetHandle()); e != nil {
			reason := kind.Cancel.GetReason()
			if reason == "" {
				reason = "the activation was cancelled"
			}
			l.host.stop(e, cancelled(reason))
		}
	case *rolev1.ExecuteCommand_Hello:
		return protocolViolation("a second hello on one stream")
	}
	return nil
}

func (l *link) start(handle uint64, start *rolev1.StartActivation) error {
	if handle == 0 || l.find(handle) != nil {
		return protocolViolation("start with the handle %d, which is 0 or in use", handle)
	}
	e, failure := l.host.admit(start, sink{handle: handle, out: l.pump, onEnd: func() { l.forget(handle) }})
	if failure != nil {
		l.pump.put(refusedFrame(handle, failure))
		return nil
	}
	if !l.remember(handle, e) {
		l.host.stop(e, cancelled(streamEnded))
	}
	l.host.launch(e)
	return nil
}

func (l *link) find(handle uint64) *execution {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.executions[handle]
}

// remember is false when the stream has ended.
func (l *link) remember(handle uint64, e *execution) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.hasEnded {
		return false
	}
	l.executions[handle] = e
	if e.isEnded() {
		delete(l.executions, handle) // by a cancel on another path; forget may have come before us
	}
	return true
}

func (l *link) forget(handle uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.executions, handle)
}

// readHello takes the first frame apart: the hello, and the commands behind it. The incarnation must be that of this
// process: a target may be served by another life of the replica, or by another process, by now.
func readHello(frame []byte, replica *rolev1.Replica) (*rolev1.ControlHello, []*rolev1.ExecuteCommand, error) {
	commands, err := parse(frame)
	if err != nil {
		return nil, nil, err
	}
	if len(commands) == 0 || commands[0].GetHello() == nil {
		return nil, nil, protocolViolation("the first command of a stream must be hello")
	}
	hello := commands[0].GetHello()
	if wanted := hello.GetReplicaIncarnationId(); wanted != replica.GetIncarnationId() {
		return nil, nil, &Error{
			Reason: ReasonStaleEpoch,
			Message: fmt.Sprintf("this is incarnation %s of replica %s, not %q",
				replica.GetIncarnationId(), replica.GetReplicaId(), wanted),
			Metadata: map[string]string{"incarnation_id": replica.GetIncarnationId()},
		}
	}
	return hello, commands[1:], nil
}

func parse(frame []byte) ([]*rolev1.ExecuteCommand, error) {
	var request rolev1.ExecuteRequest
	if err := proto.Unmarshal(frame, &request); err != nil {
		return nil, protocolViolation("a frame that is no ExecuteRequest")
	}
	return request.GetCommands(), nil
}
