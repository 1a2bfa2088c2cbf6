package agent

import (
	"cmp"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// testdata/protocol.txt lists the fields of each message and the number of the protocol. The test fails when a field changes: decide
// then whether to raise the number.
func TestProtocolIsThatOfItsNumber(t *testing.T) {
	var text strings.Builder
	fmt.Fprintf(&text, "protocol %d\n", Protocol)
	for _, message := range []any{Hello{}, Request{}, Response{}} {
		of := reflect.TypeOf(message)
		fmt.Fprintf(&text, "\n%s\n", of.Name())
		writeFields(&text, of, "  ")
	}
	const file = "testdata/protocol.txt"
	if *update {
		require.NoError(t, os.WriteFile(file, []byte(text.String()), 0o600))
	}
	want, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, string(want), text.String(),
		"raise Protocol if a daemon needs this of a helper, and run: go test ./runtimes/host/agent -run TestProtocolIsThatOfItsNumber "+
			"-update")
}

// writeFields writes the fields of a struct as JSON names them, and those of the structs in them.
func writeFields(out *strings.Builder, of reflect.Type, indent string) {
	for i := range of.NumField() {
		f := of.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		typ := strings.ReplaceAll(f.Type.String(), "interface {}", "any")
		if f.Type.Kind() == reflect.String {
			typ = "string" // JSON has no name for the type of a string
		}
		fmt.Fprintf(out, "%s%s %s\n", indent, cmp.Or(name, f.Name), typ)
		inner := f.Type
		for inner.Kind() == reflect.Pointer || inner.Kind() == reflect.Slice || inner.Kind() == reflect.Map {
			inner = inner.Elem()
		}
		if inner.Kind() == reflect.Struct && inner.PkgPath() != "time" {
			writeFields(out, inner, indent+"  ")
		}
	}
}
