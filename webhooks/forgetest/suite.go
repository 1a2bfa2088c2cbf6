package forgetest

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/reconciler/plan"
	"berth/schema"
)

// Run runs the suite over a new harness with one client for all of it, and over
// another with a new client for each call.
func Run(t *testing.T, harness func(*testing.T) Harness) {
	for _, restarts := range []bool{false, true} {
		t.Run(fmt.Sprintf("restarts=%t", restarts), func(t *testing.T) {
			t.Parallel()
			h := harness(t)
			s := &suite{Harness: h, Facts: h.Facts(), restarts: restarts, client: h.New()}
			// The suite of a forge omits features that the forge lacks.
			if s.Notes {
				t.Run("notes", s.notes)
			}
			if s.Reruns {
				t.Run("asked for again", s.reruns)
			}
			for _, part := range []struct {
				name string
				run  func(*testing.T)
			}{
				{"checks stand apart", s.checks},
				{"a reported check is not reported again", s.same},
				{"settled", s.settle},
				{"one comment of three parts", s.parts},
				{"captured", s.captured},
				{"deleted", s.deleted},
				{"twins", s.twins},
				{"second writer", s.second},
				{"two Berths", s.two},
				{"sizes", s.sizes},
				{"forged", s.forged},
				{"trouble", s.trouble},
				{"answers", s.answers},
				{"edited", s.edited},
				{"commands", s.commands},
				{"no commands", s.noCommands},
				{"permission", s.permission},
				{"pull requests", s.pulls},
				{"not there", s.missing},
			} {
				t.Run(part.name, part.run)
			}
			t.Run("crowd", s.crowd)
			t.Run("full page", s.fullPage)
		})
	}
}

type suite struct {
	Harness
	Facts
	restarts bool
	client   Client
}

// c is the client for the next call.
func (s *suite) c() Client {
	if s.restarts {
		s.client = s.New()
	}
	return s.client
}

func check(name, key string, c plan.Conclusion, notes int) plan.Check {
	out := plan.Check{Name: name, Key: key, Conclusion: c, Title: "title of " + key, Summary: "summary of " + key}
	for i := range notes {
		out.Notes = append(out.Notes, schema.Diagnostic{
			Severity: schema.SeverityError, Code: "field-unknown", Message: fmt.Sprintf("finding %d", i),
			File: "tenants/physics/tenant.yaml", Line: i + 1, Column: 3,
		})
	}
	return out
}

// silent: f writes nothing.
func (s *suite) silent(t *testing.T, f func() error, why string) {
	t.Helper()
	before := s.Writes()
	require.NoError(t, f(), why)
	require.Equal(t, before, s.Writes(), "%s: no write expected", why)
}
