// Package omniflow_test reads the golden wire fixtures of tests/vectors with the generated Go code.
package omniflow_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	// Imported for what they register: the fixtures name their types by text.
	_ "github.com/omniflow-serving/omniflow/clients/go/gen/graph/v1"
	_ "github.com/omniflow-serving/omniflow/clients/go/gen/kv/v1"
	_ "github.com/omniflow-serving/omniflow/clients/go/gen/memory/v1"
	_ "github.com/omniflow-serving/omniflow/clients/go/gen/role/v1"
	_ "github.com/omniflow-serving/omniflow/clients/go/gen/session/v1"
	_ "github.com/omniflow-serving/omniflow/clients/go/gen/workflow/v1"
	_ "google.golang.org/genproto/googleapis/rpc/errdetails"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
)

const data = "../../tests/vectors/data"

func read(t *testing.T, name string) []byte {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(data, name))
	if err != nil {
		t.Fatal(err)
	}
	return content
}

func TestBinaryEqualsJSON(t *testing.T) {
	var types map[string]protoreflect.FullName
	if err := json.Unmarshal(read(t, "index.json"), &types); err != nil {
		t.Fatal(err)
	}
	if len(types) == 0 {
		t.Fatal("the index names no fixture")
	}
	for name, fullName := range types {
		t.Run(name, func(t *testing.T) {
			messageType, err := protoregistry.GlobalTypes.FindMessageByName(fullName)
			if err != nil {
				t.Fatal(err)
			}
			fromBinary, fromJSON := messageType.New().Interface(), messageType.New().Interface()
			if err := proto.Unmarshal(read(t, name+".binpb"), fromBinary); err != nil {
				t.Fatal(err)
			}
			if err := protojson.Unmarshal(read(t, name+".json"), fromJSON); err != nil {
				t.Fatal(err)
			}
			if !proto.Equal(fromBinary, fromJSON) {
				t.Errorf("binary: %v\njson:   %v", fromBinary, fromJSON)
			}
			if unknown := fromBinary.ProtoReflect().GetUnknown(); len(unknown) > 0 {
				t.Errorf("%d bytes of unknown fields", len(unknown))
			}
			roundTrip(t, fromBinary)
		})
	}
}

// roundTrip writes the message and reads it again. Bytes are not compared: each language has its own deterministic
// order of fields.
func roundTrip(t *testing.T, message proto.Message) {
	t.Helper()
	bytes, err := proto.MarshalOptions{Deterministic: true}.Marshal(message)
	if err != nil {
		t.Fatal(err)
	}
	again := message.ProtoReflect().New().Interface()
	if err := proto.Unmarshal(bytes, again); err != nil {
		t.Fatal(err)
	}
	if !proto.Equal(message, again) {
		t.Errorf("written and read again: %v\nbefore: %v", again, message)
	}
}
