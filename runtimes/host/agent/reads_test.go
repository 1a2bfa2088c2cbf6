package agent

import (
	"testing"

	"github.com/stretchr/testify/require"

	"berth/runtimes"
)

// A call whose arguments only read may write by its input: that is an effect, unless the program says otherwise.
func TestInputIsNoRead(t *testing.T) {
	always := func([]string) bool { return true }
	list := &allowList{profiles: []runtimes.Profile{{Programs: map[string]runtimes.Program{
		"client": {Reads: always}, "asks": {Reads: always, ReadsStdin: true}, "writes": {},
	}}}}
	for _, one := range []struct {
		run   runtimes.Run
		reads bool
	}{
		{runtimes.Run{Program: "client"}, true},
		{runtimes.Run{Program: "client", Stdin: []byte("DROP DATABASE x")}, false},
		{runtimes.Run{Program: "client", StdinFile: "/backup.sql"}, false},
		{runtimes.Run{Program: "asks", Stdin: []byte("n\n")}, true},
		{runtimes.Run{Program: "asks", StdinFile: "/backup.sql"}, false},
		{runtimes.Run{Program: "writes"}, false},
		{runtimes.Run{Program: "unknown"}, false},
	} {
		require.Equal(t, one.reads, list.reads(&one.run), "%+v", one.run)
	}
}
