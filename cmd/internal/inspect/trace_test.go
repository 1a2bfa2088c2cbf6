package inspect

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// An id that nothing has may be in a ledger that could not be read: the error says which.
func TestUnknownIDNamesTheHostsThatDidNotAnswer(t *testing.T) {
	trace := &Trace{CorrelationID: "corr"}
	require.EqualError(t, trace.notFound(), `id "corr" not found on the branches here; fetch them, or check the id`)
	trace.HostsNotAsked = "no key"
	require.ErrorContains(t, trace.notFound(), "\nhosts not asked: no key")
	trace = &Trace{CorrelationID: "corr", Hosts: []HostLedger{{Host: "gpu"}, {Host: "dead", Unknown: "host dead: no answer"}},
		Warnings: []string{"a file is damaged"}}
	require.EqualError(t, trace.notFound(),
		"id \"corr\" not found on the branches here or in the ledgers of the hosts; fetch the branches, or check the id\n"+
			"unknown: host dead: no answer\nwarning: a file is damaged")
}
