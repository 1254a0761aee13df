package role

import (
	"context"
	"io"

	rolev1 "github.com/omniflow-serving/omniflow/clients/go/gen/role/v1"

	"google.golang.org/protobuf/proto"
)

// pipe is a stream without a network: the transport of one side, and the methods of the other.
type pipe struct {
	commands chan []byte
	results  chan *rolev1.ExecuteResponse
	gone     chan struct{}
}

func newPipe() *pipe {
	return &pipe{make(chan []byte), make(chan *rolev1.ExecuteResponse, 1024), make(chan struct{})}
}

func (p *pipe) receive() ([]byte, error) {
	select {
	case frame, isOpen := <-p.commands:
		if !isOpen {
			return nil, io.EOF
		}
		return frame, nil
	case <-p.gone:
		return nil, context.Canceled
	}
}

func (p *pipe) send(frames [][]byte) error {
	var joined []byte
	for _, frame := range frames {
		joined = append(joined, frame...)
	}
	message := &rolev1.ExecuteResponse{}
	if err := proto.Unmarshal(joined, message); err != nil {
		return err
	}
	select {
	case p.results <- message:
		return nil
	case <-p.gone:
		return context.Canceled
	}
}

func (p *pipe) done() <-chan struct{} { return p.gone }

func (p *pipe) Send(request *rolev1.ExecuteRequest) error {
	frame, err := proto.Marshal(request)
	if err != nil {
		return err
	}
	select {
	case p.commands <- frame:
		return nil
	case <-p.gone:
		return context.Canceled
	}
}

func (p *pipe) Recv() (*rolev1.ExecuteResponse, error) {
	select {
	case message := <-p.results:
		return message, nil
	case <-p.gone:
		select {
		case message := <-p.results: // sent before the end
			return message, nil
		default:
			return nil, io.EOF
		}
	}
}

func (p *pipe) CloseSend() error {
	close(p.commands)
	return nil
}

// leave ends the stream of a test in a bubble, which waits for all its goroutines.
func leave(c *control, p *pipe) {
	_ = p.CloseSend()
	<-c.ended
}
