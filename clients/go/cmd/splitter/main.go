// Command splitter is a role in Go: it serves the interface text.split_words.
//
//	go run ./cmd/splitter --role splitter --registry unix:$XDG_RUNTIME_DIR/omniflow/control.sock
package main

import (
	"os"

	"github.com/omniflow-serving/omniflow/clients/go/role"
)

func main() {
	os.Exit(role.Main(splitter{}))
}
