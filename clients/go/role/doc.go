// Package role is the process around interfaces that are written in Go: a gRPC server that runs their activations for
// control planes, as roles/omniflow_roles/harness does for interfaces in Python.
//
//	registries    ◀── registration ──┐                ┌── seat: runs and waits ── execution ── Interface
//	control plane ◀── link ──────────▶ host ──────────┤
//	  (one stream of each)  │                         └── …
//	                        └── pump: all results of the stream, joined as they queue up
//
// Any number of control planes may share it. It registers with one of them and goes on with the next when that one is lost
// (--registry a,b,c, and those that they name); each is told on its stream what runs here for all (loads), and what the
// older owner of a session has started ends when a newer one starts something (fences).
//
// A program is one line, `os.Exit(role.Main(upper{}))`, and an interface a type of two methods:
//
//	type upper struct{}
//
//	func (upper) Declaration() role.Declaration {
//		return role.Declaration{
//			Name:    "demo.upper",
//			Inputs:  role.Groups(role.Group("main", role.Required("text", role.TypeText))),
//			Outputs: role.Fields(role.Required("text", role.TypeText)),
//		}
//	}
//
//	func (upper) Run(ctx context.Context, activation *role.Activation, yield role.Yield) error {
//		return yield(role.Outputs{"text": role.Text(strings.ToUpper(activation.Inputs.Text("text")))})
//	}
//
// It speaks gRPC only. What it does not do it refuses by name: segments, payloads over 64 KiB (it neither reads those of
// other processes nor keeps its own for them), and links that go on after their stream has ended.
package role
