package role

import "context"

// made is an interface of a test.
type made struct {
	declaration Declaration
	run         func(context.Context, *Activation, Yield) error
}

func (m made) Declaration() Declaration { return m.declaration }

func (m made) Run(ctx context.Context, activation *Activation, yield Yield) error {
	return m.run(ctx, activation, yield)
}

// streaming makes a streaming interface of text to text.
func streaming(name string, run func(context.Context, *Activation, Yield) error) made {
	return made{run: run, declaration: Declaration{
		Name:        name,
		Inputs:      Groups(Group("main", Required("text", TypeText))),
		Outputs:     Fields(Required("text", TypeText)),
		IsStreaming: true,
	}}
}

// echo gives its text back.
var echo = streaming("test.echo", func(_ context.Context, activation *Activation, yield Yield) error {
	return yield(Outputs{"text": Text(activation.Inputs.Text("text"))})
})

// letters gives every letter of its text in a yield of its own.
var letters = streaming("test.letters", func(_ context.Context, activation *Activation, yield Yield) error {
	for _, letter := range activation.Inputs.Text("text") {
		if err := yield(Outputs{"text": Text(string(letter))}); err != nil {
			return err
		}
	}
	return nil
})

// waiting yields once, waits for the end of its context, and says so.
func waiting(name string, ended chan<- error) made {
	return streaming(name, func(ctx context.Context, _ *Activation, yield Yield) error {
		if err := yield(Outputs{"text": Text("began")}); err != nil {
			return err
		}
		<-ctx.Done()
		ended <- context.Cause(ctx)
		return ctx.Err()
	})
}
