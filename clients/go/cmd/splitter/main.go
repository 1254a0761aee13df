// Command splitter is a role in Go: it serves the interface text.split_words.
//
//	go run ./cmd/splitter --role splitter --registry unix:$XDG_RUNTIME_DIR/omniflow/control.sock
//	go run ./cmd/splitter --role splitter --registry 10.0.0.1:50052,10.0.0.2:50052    # the next when one is lost
package main

import (
	"os"

	"github.com/omniflow-serving/omniflow/clients/go/role"
)

func main() {
	os.Exit(role.Main(splitter{}))
}
