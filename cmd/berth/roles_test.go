package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/schema/authority"
)

// What `berth explain --roles` prints is the table that decides.
func TestPrintRoles(t *testing.T) {
	var text, data bytes.Buffer
	require.NoError(t, printRoles(&text, "text"))
	require.NoError(t, printRoles(&data, "json"))
	require.ErrorContains(t, printRoles(&text, "yaml"), "text or json")
	require.Error(t, printRoles(full{}, "text"))

	var got rolesReport
	require.NoError(t, json.Unmarshal(data.Bytes(), &got))
	require.Equal(t, "berth.roles/v1", got.Format)
	require.Equal(t, authority.Roles(), got.Roles)
	require.Equal(t, authority.Table(), got.Permissions)

	lines := strings.Split(text.String(), "\n")
	require.Equal(t, []string{"PLATFORM", "TENANT", "PROJECT", "SERVICE"}, strings.Fields(lines[0]))
	require.Equal(t, "PERMISSION superadmin ops owner admin owner admin member viewer account allows to", strings.Join(strings.Fields(lines[1]), " "))
	column := strings.Index(lines[1], "allows to")
	for i, row := range got.Permissions {
		line := lines[i+2]
		require.True(t, strings.HasPrefix(line, string(row.Permission)+" "), line)
		require.Equal(t, row.Doc, line[column:], "columns are aligned")
		require.Len(t, strings.Fields(line[:column]), 10, line)
	}
	require.Contains(t, strings.Join(strings.Fields(text.String()), " "), "apps.instance.member.operate allow allow allow allow allow allow - - listed drain")
}

type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("full") }
