package role

import (
	rolev1 "github.com/omniflow-serving/omniflow/clients/go/gen/role/v1"

	"google.golang.org/protobuf/proto"
)

// Results are serialized where they come up, one in a frame of its own: frames concatenate to a valid frame of many, so
// the pump joins them without looking inside, and their sizes are known.

var heartbeatFrame = frameOf(&rolev1.ExecuteResult{
	Result: &rolev1.ExecuteResult_Heartbeat{Heartbeat: &rolev1.StreamHeartbeat{}},
})

func helloFrame(replica *rolev1.Replica) []byte {
	// Without is_resumed: nothing outlives its stream here.
	return frameOf(&rolev1.ExecuteResult{
		Result: &rolev1.ExecuteResult_Hello{Hello: &rolev1.ReplicaHello{Replica: replica}},
	})
}

// loadFrame tells what runs and waits here, for those who share the replica.
func loadFrame(load *rolev1.ReplicaLoad) []byte {
	return frameOf(&rolev1.ExecuteResult{Result: &rolev1.ExecuteResult_Load{Load: load}})
}

func acceptedFrame(handle uint64) []byte {
	return frameOf(&rolev1.ExecuteResult{
		Handle: handle,
		Result: &rolev1.ExecuteResult_Accepted{Accepted: &rolev1.ActivationAccepted{}},
	})
}

func completedFrame(handle uint64, completed *rolev1.ActivationCompleted) []byte {
	return frameOf(&rolev1.ExecuteResult{
		Handle: handle,
		Result: &rolev1.ExecuteResult_Completed{Completed: completed},
	})
}

func failedFrame(handle uint64, failure *Error) []byte {
	return frameOf(&rolev1.ExecuteResult{
		Handle: handle,
		Result: &rolev1.ExecuteResult_Failed{Failed: &rolev1.ActivationFailed{
			Status:      failure.proto(),
			IsRetryable: failure.mayPassElsewhere(),
		}},
	})
}

// refusedFrame is the only result of an activation that is not taken in.
func refusedFrame(handle uint64, failure *Error) []byte {
	return frameOf(&rolev1.ExecuteResult{
		Handle: handle,
		Result: &rolev1.ExecuteResult_Failed{Failed: &rolev1.ActivationFailed{
			Status:      failure.proto(),
			IsRetryable: failure.mayPassElsewhere(),
			IsRefused:   true,
		}},
	})
}

// yieldFrame returns what proto.Marshal does: an error for texts that are no UTF-8.
func yieldFrame(handle, ordinal uint64, outputs Outputs) ([]byte, error) {
	return proto.Marshal(&rolev1.ExecuteResponse{Results: []*rolev1.ExecuteResult{{
		Handle: handle,
		Result: &rolev1.ExecuteResult_Yield{Yield: &rolev1.ActivationYield{Ordinal: ordinal, Fields: outputs}},
	}}})
}

func receiptFrame(receivedMessages uint64) []byte {
	return marshal(&rolev1.ExecuteResponse{ReceivedMessages: receivedMessages})
}

func frameOf(result *rolev1.ExecuteResult) []byte {
	return marshal(&rolev1.ExecuteResponse{Results: []*rolev1.ExecuteResult{result}})
}

// marshal is for frames whose texts are our own, or were made valid.
func marshal(frame *rolev1.ExecuteResponse) []byte {
	data, err := proto.Marshal(frame)
	if err != nil {
		panic(err)
	}
	return data
}
