package role

import (
	"context"

	common "github.com/omniflow-serving/omniflow/clients/go/gen/common/v1"
	graph "github.com/omniflow-serving/omniflow/clients/go/gen/graph/v1"
	workflow "github.com/omniflow-serving/omniflow/clients/go/gen/workflow/v1"
)

// Interface is what a role serves. One value lives as long as its process and serves many activations at once.
type Interface interface {
	// Declaration is asked for once, before the process serves.
	Declaration() Declaration
	// Run does one activation: it yields outputs and returns. The context ends when the activation is stopped; what Run
	// does afterwards goes nowhere, so it should return soon.
	//
	// An *Error goes to the caller as it is. Any other error, and a panic, is INTERFACE_FAILED, and its text stays in the
	// log of this process.
	Run(ctx context.Context, activation *Activation, yield Yield) error
}

// Yield gives one output. It waits while receivers are behind (the window of the activation is full).
//
// It returns an error when there is nobody to give to any more, or when the output breaks the declaration, which fails the
// activation with INVALID_OUTPUT; Run should return the error. Goroutines that yield at the same time take turns.
type Yield func(Outputs) error

// Declaration is what graphs need to know of an interface. Their Python side declares the same: see docs/graphs.md.
type Declaration struct {
	// Name, as registered, such as text.split_words.
	Name string
	// Inputs are the input groups, alternatives of each other.
	Inputs []*workflow.InputGroup
	// Outputs are the output fields.
	Outputs []*workflow.Field
	// IsStreaming: it may yield more than once.
	IsStreaming bool
	// MaxConcurrency is how many activations run at the same time, the rest wait; 0 runs all that the replica takes.
	MaxConcurrency int
}

// Groups lists input groups.
func Groups(groups ...*workflow.InputGroup) []*workflow.InputGroup { return groups }

// Fields lists fields.
func Fields(fields ...*workflow.Field) []*workflow.Field { return fields }

// Group is an input group. A node with one group has it as "main" by habit.
func Group(name string, fields ...*workflow.Field) *workflow.InputGroup {
	return &workflow.InputGroup{Name: name, Fields: fields}
}

// Required is a field that is always there.
func Required(name string, valueType common.ValueType) *workflow.Field {
	return &workflow.Field{Name: name, Type: valueType}
}

// Optional is a field that an input group can do without.
func Optional(name string, valueType common.ValueType) *workflow.Field {
	return &workflow.Field{Name: name, Type: valueType, IsOptional: true}
}

// Activation is one execution of an interface.
type Activation struct {
	Inputs Inputs
	// CallID is the graph call.
	CallID string
	// ID is unique in the call; another attempt has the same.
	ID uint64
	// Node of the graph.
	Node string
	// Attempt counts from 1.
	Attempt uint32
	// Delivered are the yields of earlier attempts, for a node with replay = continue. The next one comes after them.
	Delivered   []Outputs
	Tenant      string
	Session     string
	Priority    int32
	Traceparent string
	// Sampling are the call's parameters; nil when it has none.
	Sampling *graph.SamplingParameters
	// Usage is added to the call's; Run may count in it.
	Usage *graph.Usage
	// FinishReason is set by the node that decides why the call ends.
	FinishReason graph.FinishReason
}

func (d *Declaration) group(name string) *workflow.InputGroup {
	for _, group := range d.Inputs {
		if group.GetName() == name {
			return group
		}
	}
	return nil
}

func fieldNamed(fields []*workflow.Field, name string) *workflow.Field {
	for _, field := range fields {
		if field.GetName() == name {
			return field
		}
	}
	return nil
}
