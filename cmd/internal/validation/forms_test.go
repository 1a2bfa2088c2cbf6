package validation

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/cmd/internal/cli"
	"berth/schema"
)

// A finding is one line, whatever the name of its file. It has no effect on the
// terminal or on the workflow that prints it.
func TestFindingsOfHostileNames(t *testing.T) {
	t.Parallel()
	for _, evil := range []string{"\n", "\r", "\r\n", "\u2028", "\x1b]0;", "\x1b[2J", "\u202e", "\x9b2J", "\x00"} {
		v := &Validation{Diagnostics: []schema.Diagnostic{{
			File: "tenants/x/" + evil + "::warning::all is well.yaml", Line: 3, Column: 1,
			Severity: schema.SeverityError, Code: "schema.value", Message: "not " + evil + "::error::this", // quoted from it
		}}}
		v.Summary.Documents, v.Summary.Errors = 1, 1
		for _, form := range []string{"text", "github"} {
			var out strings.Builder
			require.NoError(t, v.Write(&out, form))
			lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
			require.Len(t, lines, 2, "%s: %q", form, out.String())
			for _, line := range lines {
				require.Equal(t, cli.Visible(line), line, form)
			}
			require.Contains(t, lines[0], "all is well.yaml", form)
			require.Equal(t, "1 error, 0 warnings in 1 document", lines[1])
		}
	}
}
