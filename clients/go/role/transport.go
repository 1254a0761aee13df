package role

import (
	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto" // registers the codec that is asked for below
	"google.golang.org/grpc/mem"
)

// transport carries the frames of one stream.
type transport interface {
	// receive gives the next frame of the peer; io.EOF when the peer has ended its side.
	receive() ([]byte, error)
	// send writes frames as one message.
	send(frames [][]byte) error
	// done is closed when the stream is gone.
	done() <-chan struct{}
}

// streamTransport is a transport over gRPC.
type streamTransport struct{ stream grpc.ServerStream }

func (t streamTransport) receive() ([]byte, error) {
	var message rawMessage
	if err := t.stream.RecvMsg(&message); err != nil {
		return nil, err // gRPC has told the peer of it already, if it is still there
	}
	return message.pieces[0], nil
}

func (t streamTransport) send(frames [][]byte) error {
	return t.stream.SendMsg(&rawMessage{frames})
}

func (t streamTransport) done() <-chan struct{} {
	return t.stream.Context().Done()
}

// rawMessage is a message of Execute as bytes, in pieces when it is sent: the pump joins what is serialized already.
type rawMessage struct{ pieces [][]byte }

// rawCodec is gRPC's own for protobuf, and takes raw messages besides.
type rawCodec struct{ encoding.CodecV2 }

func newRawCodec() rawCodec {
	return rawCodec{encoding.GetCodecV2("proto")}
}

func (c rawCodec) Marshal(message any) (mem.BufferSlice, error) {
	raw, isRaw := message.(*rawMessage)
	if !isRaw {
		return c.CodecV2.Marshal(message)
	}
	buffers := make(mem.BufferSlice, len(raw.pieces))
	for i, piece := range raw.pieces {
		buffers[i] = mem.SliceBuffer(piece)
	}
	return buffers, nil
}

func (c rawCodec) Unmarshal(data mem.BufferSlice, message any) error {
	raw, isRaw := message.(*rawMessage)
	if !isRaw {
		return c.CodecV2.Unmarshal(data, message)
	}
	raw.pieces = [][]byte{data.Materialize()}
	return nil
}
