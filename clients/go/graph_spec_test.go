package omniflow_test

import (
	"testing"

	common "github.com/omniflow-serving/omniflow/clients/go/gen/common/v1"
	workflow "github.com/omniflow-serving/omniflow/clients/go/gen/workflow/v1"

	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
)

const (
	typeText   = common.ValueType_VALUE_TYPE_TEXT
	typeTensor = common.ValueType_VALUE_TYPE_TENSOR
	typeImage  = common.ValueType_VALUE_TYPE_IMAGE
	typeJSON   = common.ValueType_VALUE_TYPE_JSON
	typeSignal = common.ValueType_VALUE_TYPE_SIGNAL
)

func field(name string, valueType common.ValueType) *workflow.Field {
	return &workflow.Field{Name: name, Type: valueType}
}

func group(name string, fields ...*workflow.Field) *workflow.InputGroup {
	return &workflow.InputGroup{Name: name, Fields: fields}
}

func groups(groups ...*workflow.InputGroup) []*workflow.InputGroup {
	return groups
}

func fields(fields ...*workflow.Field) []*workflow.Field {
	return fields
}

// end is a field of a node, of one of its input groups, or, with a name alone, of the graph.
type end struct{ node, group, field string }

func edge(source, target end) *workflow.Edge {
	return &workflow.Edge{
		SourceNode:  source.node,
		SourceField: source.field,
		TargetNode:  target.node,
		TargetGroup: target.group,
		TargetField: target.field,
	}
}

func counted(field, countField string) *workflow.CountTrigger {
	return &workflow.CountTrigger{Field: field, Count: &workflow.CountTrigger_CountField{CountField: countField}}
}

func once(field string) *workflow.CountTrigger {
	return &workflow.CountTrigger{Field: field, Count: &workflow.CountTrigger_Constant{Constant: 1}}
}

// figure4 is the last graph of docs/graphs.md, written without the Python DSL.
func figure4() *workflow.GraphSpec {
	return &workflow.GraphSpec{
		Name:        "graphs/figure4",
		Description: "Text and images in; streamed text and an image out.",
		Nodes: []*workflow.Node{
			{
				Name: "parser", Interface: "figure4.parser", IsInline: true, IsStreaming: true,
				InputGroups: groups(group("main", field("text", typeText))),
				Outputs: fields(
					field("text", typeText),
					field("image", typeImage),
					field("size", typeJSON),
					field("generate", typeSignal),
					field("vit_count", typeJSON),
					field("vae_count", typeJSON),
				),
			},
			{
				Name: "embed", Interface: "figure4.embed", Role: "encoders",
				InputGroups: groups(group("main", field("text", typeText))),
				Outputs:     fields(field("embedding", typeTensor)),
			},
			{
				Name: "vit", Interface: "figure4.vit", Role: "encoders",
				InputGroups: groups(group("main", field("image", typeImage))),
				Outputs:     fields(field("embedding", typeTensor)),
			},
			{
				Name: "vae", Interface: "figure4.vae", Role: "encoders",
				InputGroups: groups(group("main", field("image", typeImage))),
				Outputs:     fields(field("latent", typeTensor)),
			},
			{
				Name: "llm", Interface: "figure4.llm", Role: "llm", IsStreaming: true, IsSessionOrdered: true,
				InputGroups: groups(
					group("text", field("embedding", typeTensor)),
					group("image", field("vit", typeTensor), field("vae", typeTensor)),
					group("turn", field("generate", typeSignal)),
				),
				Outputs: fields(field("text", typeText), field("done", typeSignal)),
			},
			{
				Name: "diffusion", Interface: "figure4.diffusion", Role: "images",
				InputGroups: groups(
					group("start", field("done", typeSignal), field("vit_count", typeJSON), field("vae_count", typeJSON)),
					group("vision", field("vit", typeTensor)),
					group("latents", field("vae", typeTensor), field("size", typeJSON)),
				),
				Outputs:         fields(field("latent", typeTensor)),
				ActivateByCount: []*workflow.CountTrigger{once("done"), counted("vit", "vit_count"), counted("vae", "vae_count")},
			},
			{
				Name: "decoder", Interface: "figure4.decoder", Role: "images",
				InputGroups: groups(group("main", field("latent", typeTensor))),
				Outputs:     fields(field("image", typeImage)),
			},
		},
		Edges: []*workflow.Edge{
			edge(end{field: "text"}, end{"parser", "main", "text"}),
			edge(end{node: "parser", field: "text"}, end{"embed", "main", "text"}),
			edge(end{node: "parser", field: "image"}, end{"vit", "main", "image"}),
			edge(end{node: "parser", field: "image"}, end{"vae", "main", "image"}),
			edge(end{node: "embed", field: "embedding"}, end{"llm", "text", "embedding"}),
			edge(end{node: "vit", field: "embedding"}, end{"llm", "image", "vit"}),
			edge(end{node: "vae", field: "latent"}, end{"llm", "image", "vae"}),
			edge(end{node: "parser", field: "generate"}, end{"llm", "turn", "generate"}),
			edge(end{node: "llm", field: "text"}, end{field: "text"}),
			edge(end{node: "llm", field: "done"}, end{"diffusion", "start", "done"}),
			edge(end{node: "parser", field: "vit_count"}, end{"diffusion", "start", "vit_count"}),
			edge(end{node: "parser", field: "vae_count"}, end{"diffusion", "start", "vae_count"}),
			edge(end{node: "vit", field: "embedding"}, end{"diffusion", "vision", "vit"}),
			edge(end{node: "vae", field: "latent"}, end{"diffusion", "latents", "vae"}),
			edge(end{node: "parser", field: "size"}, end{"diffusion", "latents", "size"}),
			edge(end{node: "diffusion", field: "latent"}, end{"decoder", "main", "latent"}),
			edge(end{node: "decoder", field: "image"}, end{field: "image"}),
		},
		Placeholders: []*workflow.Placeholder{{Field: field("text", typeText)}},
		Outputs: []*workflow.Output{
			{Field: field("text", typeText)},
			{Field: field("image", typeImage)},
		},
	}
}

func TestGraphBuiltInGoEqualsThatOfThePythonDSL(t *testing.T) {
	var written workflow.GraphSpec
	if err := proto.Unmarshal(read(t, "graph_spec_figure4.binpb"), &written); err != nil {
		t.Fatal(err)
	}
	if built := figure4(); !proto.Equal(built, &written) {
		t.Errorf("in Go:\n%s\nin Python:\n%s", prototext.Format(built), prototext.Format(&written))
	}
}
