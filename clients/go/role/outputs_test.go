package role

import (
	"strings"
	"testing"

	common "github.com/omniflow-serving/omniflow/clients/go/gen/common/v1"
)

var mixed = &Declaration{
	Name:    "test.mixed",
	Outputs: Fields(Required("text", TypeText), Required("tensor", TypeTensor), Required("done", TypeSignal)),
}

func inline(size int) *common.Payload {
	return &common.Payload{Place: &common.Payload_Inline{Inline: make([]byte, size)}}
}

func TestOutputsAsDeclaredAreSent(t *testing.T) {
	for _, outputs := range []Outputs{
		nil,
		{"done": Signal()},
		{"text": Text(strings.Repeat("ä", maxTextBytes/2)), "tensor": tensor(inline(maxPayloadBytes))},
	} {
		if failure := checkOutputs(outputs, mixed); failure != nil {
			t.Error(failure)
		}
	}
}

func TestOutputsThatCannotBeSentAreNamed(t *testing.T) {
	for name, c := range map[string]struct {
		output string
		value  *Value
	}{
		"undeclared":    {"texts", Text("a")},
		"no value":      {"text", nil},
		"no kind":       {"text", &Value{}},
		"other type":    {"text", Signal()},
		"long text":     {"text", Text(strings.Repeat("a", maxTextBytes+1))},
		"no UTF-8":      {"text", Text("a\xff")},
		"large payload": {"tensor", tensor(inline(maxPayloadBytes + 1))},
		"far payload":   {"tensor", tensor(remote())},
	} {
		t.Run(name, func(t *testing.T) {
			failure := checkOutputs(Outputs{c.output: c.value}, mixed)
			if failure == nil {
				t.Fatal("it is sent")
			}
			if failure.Reason != ReasonInvalidOutput || failure.Metadata["output"] != c.output {
				t.Errorf("%s of %v", failure.Reason, failure.Metadata)
			}
		})
	}
}
