package role

import (
	common "github.com/omniflow-serving/omniflow/clients/go/gen/common/v1"

	"google.golang.org/protobuf/types/known/structpb"
)

// Value is one value of a field.
type Value = common.Value

// Outputs is one yield: values by output field. A field that is left out is skipped, which its receivers are told.
type Outputs map[string]*Value

// The types of fields.
const (
	TypeText   = common.ValueType_VALUE_TYPE_TEXT
	TypeTokens = common.ValueType_VALUE_TYPE_TOKENS
	TypeTensor = common.ValueType_VALUE_TYPE_TENSOR
	TypeImage  = common.ValueType_VALUE_TYPE_IMAGE
	TypeAudio  = common.ValueType_VALUE_TYPE_AUDIO
	TypeVideo  = common.ValueType_VALUE_TYPE_VIDEO
	TypeAction = common.ValueType_VALUE_TYPE_ACTION
	TypeBytes  = common.ValueType_VALUE_TYPE_BYTES
	TypeJSON   = common.ValueType_VALUE_TYPE_JSON
	TypeSignal = common.ValueType_VALUE_TYPE_SIGNAL
)

// Text is a text, at most 1 MiB of UTF-8.
func Text(text string) *Value {
	return &Value{Kind: &common.Value_Text{Text: text}}
}

// Number is a JSON number.
func Number(number float64) *Value {
	return &Value{Kind: &common.Value_Json{Json: structpb.NewNumberValue(number)}}
}

// JSON is a JSON value, of what structpb.NewValue takes; it returns that function's error.
func JSON(value any) (*Value, error) {
	converted, err := structpb.NewValue(value)
	if err != nil {
		return nil, err
	}
	return &Value{Kind: &common.Value_Json{Json: converted}}, nil
}

// Signal says that something happened.
func Signal() *Value {
	return &Value{Kind: &common.Value_Signal{Signal: &common.Signal{}}}
}

// typeOf is the type of a value, unspecified for nil and for a value without a kind.
func typeOf(value *Value) common.ValueType {
	switch value.GetKind().(type) {
	case *common.Value_Text:
		return TypeText
	case *common.Value_Tokens:
		return TypeTokens
	case *common.Value_Tensor:
		return TypeTensor
	case *common.Value_Image:
		return TypeImage
	case *common.Value_Audio:
		return TypeAudio
	case *common.Value_Video:
		return TypeVideo
	case *common.Value_Action:
		return TypeAction
	case *common.Value_Data:
		return TypeBytes
	case *common.Value_Json:
		return TypeJSON
	case *common.Value_Signal:
		return TypeSignal
	default:
		return common.ValueType_VALUE_TYPE_UNSPECIFIED
	}
}

// payloadOf is the payload of a value; nil when there is none.
func payloadOf(value *Value) *common.Payload {
	switch kind := value.GetKind().(type) {
	case *common.Value_Tensor:
		return kind.Tensor.GetPayload()
	case *common.Value_Image:
		return kind.Image.GetPayload()
	case *common.Value_Audio:
		return kind.Audio.GetPayload()
	case *common.Value_Video:
		return kind.Video.GetPayload()
	case *common.Value_Action:
		return kind.Action.GetValues().GetPayload()
	case *common.Value_Data:
		return kind.Data
	default:
		return nil
	}
}

// isHere says whether the payload, if there is one, is in the message itself.
func isHere(payload *common.Payload) bool {
	if payload.GetPlace() == nil {
		return true
	}
	_, isInline := payload.GetPlace().(*common.Payload_Inline)
	return isInline
}

// typeName is how errors name a type, such as TEXT.
func typeName(valueType common.ValueType) string {
	return valueType.String()[len("VALUE_TYPE_"):]
}
