package role

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	rolev1 "github.com/omniflow-serving/omniflow/clients/go/gen/role/v1"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
)

// Limits of the requests, as in proto/omniflow/role/v1/role_execution_service.proto.
const (
	longestCallID = 128
	longestReason = 1024
	mostCallIDs   = 1000
)

// service is RoleExecutionService: it translates between gRPC and the host, and decides nothing.
type service struct {
	rolev1.UnimplementedRoleExecutionServiceServer
	host      *host
	replica   *rolev1.Replica
	heartbeat time.Duration

	mu    sync.Mutex
	links map[*link]struct{}
	byID  map[string]*link
}

func newService(host *host, replica *rolev1.Replica, heartbeat time.Duration) *service {
	return &service{
		host:      host,
		replica:   replica,
		heartbeat: heartbeat,
		links:     make(map[*link]struct{}),
		byID:      make(map[string]*link),
	}
}

// Execute serves one stream of a control plane.
func (s *service) Execute(stream grpc.BidiStreamingServer[rolev1.ExecuteRequest, rolev1.ExecuteResponse]) error {
	return s.serve(streamTransport{stream})
}

func (s *service) serve(stream transport) error {
	first, err := stream.receive()
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	hello, commands, err := readHello(first, s.replica)
	if err != nil {
		return err
	}
	l := newLink(s.host, s.heartbeat)
	if hello.GetLinkId() != "" {
		l.pump.countReceipts()
	}
	s.add(l, hello.GetLinkId())
	defer s.remove(l, hello.GetLinkId())
	l.pump.send(helloFrame(s.described()))
	return l.serve(stream, commands)
}

// CancelActivations stops a call's activations, here and still to come.
func (s *service) CancelActivations(
	_ context.Context, request *rolev1.CancelActivationsRequest,
) (*rolev1.CancelActivationsResponse, error) {
	if err := checkText("call_id", request.GetCallId(), longestCallID); err != nil {
		return nil, err
	}
	if request.GetCallId() == "" {
		return nil, invalidField("call_id", "it is required")
	}
	if err := checkText("reason", request.GetReason(), longestReason); err != nil {
		return nil, err
	}
	count := s.host.cancelCall(request.GetCallId(), request.GetReason())
	return &rolev1.CancelActivationsResponse{Cancelled: uint32(count)}, nil
}

// ReleaseCall ends what still runs of calls that have had their terminal event; nothing else is kept for a call.
func (s *service) ReleaseCall(
	_ context.Context, request *rolev1.ReleaseCallRequest,
) (*rolev1.ReleaseCallResponse, error) {
	switch count := len(request.GetCallIds()); {
	case count == 0:
		return nil, invalidField("call_ids", "it is required")
	case count > mostCallIDs:
		return nil, invalidField("call_ids", "at most %d are allowed, there are %d", mostCallIDs, count)
	}
	for _, callID := range request.GetCallIds() {
		s.host.endCall(callID)
	}
	return &rolev1.ReleaseCallResponse{}, nil
}

// DescribeRole tells what the process serves.
func (s *service) DescribeRole(
	context.Context, *rolev1.DescribeRoleRequest,
) (*rolev1.DescribeRoleResponse, error) {
	response := &rolev1.DescribeRoleResponse{Replica: s.described()}
	for _, name := range s.host.names() {
		declaration := s.host.seats[name].declaration
		response.Interfaces = append(response.Interfaces, &rolev1.InterfaceDescription{
			Name:        name,
			InputGroups: declaration.Inputs,
			Outputs:     declaration.Outputs,
			IsStreaming: declaration.IsStreaming,
		})
	}
	return response, nil
}

// described is the replica with its state of the moment.
func (s *service) described() *rolev1.Replica {
	replica := proto.Clone(s.replica).(*rolev1.Replica)
	replica.State = s.host.state()
	return replica
}

// close ends every stream when what is queued has been written.
func (s *service) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for l := range s.links {
		l.pump.close()
	}
}

// add ends an earlier stream of the same link: its control plane has given it up, which this side may not know yet.
func (s *service) add(l *link, linkID string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.links[l] = struct{}{}
	if linkID == "" {
		return
	}
	if earlier := s.byID[linkID]; earlier != nil {
		close(earlier.superseded)
	}
	s.byID[linkID] = l
}

func (s *service) remove(l *link, linkID string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.links, l)
	if s.byID[linkID] == l {
		delete(s.byID, linkID)
	}
}

func checkText(field, text string, limit int) error {
	if len(text) > limit {
		return invalidField(field, "at most %d bytes are allowed, there are %d", limit, len(text))
	}
	return nil
}
