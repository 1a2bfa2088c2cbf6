package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/cmd/internal/cli"
	"berth/cmd/internal/localestate"
	"berth/schema"
	"berth/schema/authority"
	"berth/schema/estate"
)

// `berth explain --roles` prints the table that the decisions use.
func TestPrintRoles(t *testing.T) {
	var text, data bytes.Buffer
	require.NoError(t, new(cli.Output).Print(&text, newRolesReport()))
	require.NoError(t, (&cli.Output{Form: "json"}).Print(&data, newRolesReport()))
	require.Error(t, new(cli.Output).Print(full{}, newRolesReport()))

	var got rolesReport
	require.NoError(t, json.Unmarshal(data.Bytes(), &got))
	require.Equal(t, "berth.roles/v1", got.Format)
	require.Equal(t, authority.Roles(), got.Roles)
	require.Equal(t, authority.Table(), got.Permissions)

	lines := strings.Split(text.String(), "\n")
	require.Equal(t, []string{"PLATFORM", "TENANT", "PROJECT", "SERVICE"}, strings.Fields(lines[0]))
	require.Equal(t, "PERMISSION superadmin ops owner admin owner admin member viewer account allows to",
		strings.Join(strings.Fields(lines[1]), " "))
	column := strings.Index(lines[1], "allows to")
	for i, row := range got.Permissions {
		line := lines[i+2]
		require.True(t, strings.HasPrefix(line, string(row.Permission)+" "), line)
		require.Equal(t, row.Doc, line[column:], "columns are aligned")
		require.Len(t, strings.Fields(line[:column]), 10, line)
	}
	require.Contains(t, strings.Join(strings.Fields(text.String()), " "),
		"apps.instance.member.operate allow allow allow allow allow allow - - listed drain")
}

type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("full") }

// Of a real estate every document needs something, whatever becomes of it.
func TestEveryDocumentNeedsAPermission(t *testing.T) {
	snap, err := estate.Dir(filepath.Join(moduleRoot, "examples/campus"))
	require.NoError(t, err)
	l, err := localestate.NewLoader()
	require.NoError(t, err)
	r, err := l.Load(context.Background(), snap)
	require.NoError(t, err)
	seen := 0
	for path, key := range r.Documents() {
		for _, c := range []schema.PathChange{{Path: path, To: "2"}, {Path: path, From: "1", To: "2"}, {Path: path, From: "1"}} {
			needs := authority.Needs(r.Desired, r.Desired, key, c)
			require.NotEmpty(t, needs, path)
			for _, dec := range authority.Decide(authority.Rules{Base: r.Desired},
				authority.Actor{Login: "mallory", Proof: authority.ProofPullRequest, BreakGlass: "x"}, needs) {
				require.False(t, dec.Allowed, path)
			}
		}
		seen++
	}
	require.Greater(t, seen, 30)
}
