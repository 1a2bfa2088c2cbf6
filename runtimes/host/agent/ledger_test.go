package agent_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/runtimes"
	"berth/runtimes/host/agent"
)

// read reads the ledger of a host as a person does: with no epoch.
func (f *far) read(id string) *runtimes.LedgerPart {
	f.Helper()
	r := f.ask(runtimes.Stamp{}, runtimes.Op{Ledger: &runtimes.ReadLedger{CorrelationID: id}})
	require.Nil(f, r.Fault, "%v", r.Fault)
	require.NotNil(f, r.Results[0].Ledger)
	return r.Results[0].Ledger
}

// The entries of one correlation id are read, without an effect: no epoch, no entry, no file.
func TestLedgerIsReadByCorrelationID(t *testing.T) {
	f := newFar(t)
	require.Empty(t, f.read("corr").Entries, "a host without a ledger")
	require.NoDirExists(t, f.state, "reading makes nothing")

	path := f.path("open", "a")
	f.do(write(path, "canary-content"))
	other := f.stamp()
	other.CorrelationID = "corr-2"
	require.NotNil(t, f.ask(other, write("/etc/passwd", "x")).Fault)
	before, err := os.ReadFile(filepath.Join(f.state, "ledger.jsonl"))
	require.NoError(t, err)

	part := f.read("corr")
	require.Len(t, part.Entries, 1)
	require.Equal(t, "write "+path, part.Entries[0].Op)
	require.Equal(t, f.stamp(), part.Entries[0].Stamp)
	require.Zero(t, part.Earlier)
	part = f.read("corr-2")
	require.Len(t, part.Entries, 2)
	require.Equal(t, runtimes.StoppedAt+"write /etc/passwd: refused", part.Entries[1].Op)
	for _, id := range []string{"cor", "c0ffee", "write", `"`} { // neither a part of an id nor another word of the line
		require.Empty(t, f.read(id).Entries, id)
	}
	require.Contains(t, f.fails("invalid", runtimes.Op{Ledger: &runtimes.ReadLedger{}}), "correlation id")

	after, err := os.ReadFile(filepath.Join(f.state, "ledger.jsonl"))
	require.NoError(t, err)
	require.Equal(t, string(before), string(after))
	require.False(t, agent.MayEffect(runtimes.Op{Ledger: &runtimes.ReadLedger{}}), "the client may repeat it")
}

// Both files are read in order, damaged and endless lines are skipped, and the newest entries
// of very many are kept.
func TestLedgerReadIsBounded(t *testing.T) {
	f := newFar(t)
	name := filepath.Join(f.state, "ledger.jsonl")
	lines := func(from, to int) string {
		var b strings.Builder
		for i := from; i <= to; i++ {
			fmt.Fprintf(&b, `{"seq":%d,"at":"2026-08-01T10:00:00Z","stamp":{"epoch":1,"commit":"","correlation_id":"many"},"op":"write /x"}`+"\n", i)
		}
		return b.String()
	}
	require.NoError(t, os.MkdirAll(f.state, 0o700))
	require.NoError(t, os.WriteFile(name+".1", []byte(lines(1, 900)), 0o600))
	endless := `{"seq":5,"correlation_id":"many",` + strings.Repeat(`"x":"many",`, 2000) + "\n"
	endless += strings.Repeat(" ", 8<<10) + lines(1, 1) // the end of a line without an entry does not count as an entry
	require.NoError(t, os.WriteFile(name, []byte(endless+`{"many"`+"\n"+lines(901, 1400)+`{"seq":1401,"at":"20`), 0o600))
	part := f.read("many")
	require.Len(t, part.Entries, 500)
	require.Equal(t, 900, part.Earlier)
	require.Equal(t, []uint64{901, 1400}, []uint64{part.Entries[0].Seq, part.Entries[499].Seq})

	// A file that is renamed while both are opened counts once.
	require.NoError(t, os.Remove(name+".1"))
	require.NoError(t, os.Link(name, name+".1"))
	require.Len(t, f.read("many").Entries, 500)
	require.Zero(t, f.read("many").Earlier)

	// A link in its place is not followed.
	require.NoError(t, os.Remove(name))
	require.NoError(t, os.Symlink("/etc/passwd", name))
	require.Contains(t, f.fails("io", runtimes.Op{Ledger: &runtimes.ReadLedger{CorrelationID: "many"}}), "ledger.jsonl")
}
