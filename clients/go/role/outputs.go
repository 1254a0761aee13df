package role

import (
	"fmt"
	"unicode/utf8"

	common "github.com/omniflow-serving/omniflow/clients/go/gen/common/v1"
)

const (
	// maxTextBytes of one text value, as the contract says.
	maxTextBytes = 1 << 20
	// maxPayloadBytes of the largest payload that travels in a message between processes of the platform.
	maxPayloadBytes = 64 << 10
	// maxYieldBytes is the largest frame of one yield. A larger message would end the stream, and everybody's work on it.
	maxYieldBytes = 8 << 20
)

// checkOutputs gives INVALID_OUTPUT unless the outputs are as declared and may be sent.
func checkOutputs(outputs Outputs, declaration *Declaration) *Error {
	for name, value := range outputs {
		if failure := checkOutput(name, value, declaration); failure != nil {
			return failure
		}
	}
	return nil
}

func checkOutput(name string, value *Value, declaration *Declaration) *Error {
	field := fieldNamed(declaration.Outputs, name)
	if field == nil {
		return invalidOutput(declaration, name, "it does not declare it")
	}
	switch given := typeOf(value); {
	case given == common.ValueType_VALUE_TYPE_UNSPECIFIED:
		return invalidOutput(declaration, name, "the value has no kind")
	case given != field.GetType():
		return invalidOutput(declaration, name, "it is %s, declared is %s", typeName(given), typeName(field.GetType()))
	}
	if text := value.GetText(); len(text) > maxTextBytes {
		return invalidOutput(declaration, name,
			"a text of %d bytes, at most %d are allowed; give it in several yields", len(text), maxTextBytes)
	} else if !utf8.ValidString(text) {
		return invalidOutput(declaration, name, "a text that is no UTF-8")
	}
	payload := payloadOf(value)
	if size := len(payload.GetInline()); !isHere(payload) || size > maxPayloadBytes {
		return invalidOutput(declaration, name,
			"a payload of %d bytes in the message, and this replica gives at most %d, all of them there", size, maxPayloadBytes)
	}
	return nil
}

func invalidOutput(declaration *Declaration, output, format string, args ...any) *Error {
	return &Error{
		Reason: ReasonInvalidOutput,
		Message: fmt.Sprintf("interface %s gave output %q, which cannot be sent: ", declaration.Name, output) +
			fmt.Sprintf(format, args...),
		Metadata: map[string]string{"interface": declaration.Name, "output": output},
	}
}
