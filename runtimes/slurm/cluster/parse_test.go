package cluster

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/schema"
)

func TestSettingsAreChecked(t *testing.T) {
	s, err := Parse(nil)
	require.NoError(t, err)
	require.Equal(t, []Partition{{Name: "main", Default: true}}, s.Partitions)
	require.Equal(t, IdentityManaged, s.Identity)
	for _, bad := range []string{
		`{"partitions":[{"name":"a"},{"name":"a"}]}`,
		`{"partitions":[{"name":"a","default":true},{"name":"b","default":true}]}`,
		`{"partitions":[{"name":"default"}]}`,
		`{"partitions":[{"name":"a","max_time_minutes":-1}]}`,
		`{"identity":"ldap"}`,
		`{"slurm_conf":"Include /x"}`,
		`{"scheduler":{"interval_seconds":0}}`,
		`[]`,
	} {
		_, err := Parse(json.RawMessage(bad))
		require.Error(t, err, bad)
	}
}

// A user has a name of POSIX and a uid that means one account.
func TestUsersHaveTheNamesOfPOSIX(t *testing.T) {
	for _, u := range []schema.UnixUser{{Name: "first.last", UID: 1000}, {Name: "J.Doe_3", UID: 65533}, {Name: "7of9", UID: 65536},
		{Name: "a", UID: 1<<32 - 3}} {
		require.NoError(t, CheckUser(u))
	}
	for _, name := range []string{"", ".", "..", ".a", "-a", "1001", "a,b", "a b", "a'b", "a/b", "a:b", "a\n", strings.Repeat("a", 33)} {
		require.Error(t, CheckUser(schema.UnixUser{Name: name, UID: 2001}), name)
	}
	for _, uid := range []int{-1, 0, 999, 65534, 65535, 1<<32 - 2, 1<<32 - 1, 1 << 32} {
		require.Error(t, CheckUser(schema.UnixUser{Name: "anna", UID: uid}), uid)
	}
}

func TestReservationsAreChecked(t *testing.T) {
	for config, problem := range map[string]string{
		`{"name":"a","start":"2026-12-24T18:00:00Z","duration_minutes":0}`:                                                                    "reservations[0].duration_minutes: is 0",
		`{"name":"A","start":"2026-12-24T18:00:00Z","duration_minutes":60}`:                                                                   `reservations[0].name: "A" is invalid`,
		`{"name":"a","start":"1999-12-24T18:00:00Z","duration_minutes":60}`:                                                                   "reservations[0].start: 1999-12-24T18:00:00Z is no time",
		`{"name":"a","start":"2026-12-24T18:00:00Z","duration_minutes":60},{"name":"a","start":"2026-12-25T18:00:00Z","duration_minutes":60}`: `reservations[1].name: "a" is invalid, or there twice`,
		`{"name":"a","start":"2026-12-24T18:00:00.5Z","duration_minutes":60}`:                                                                 "reservations[0].start: 2026-12-24T18:00:00.5Z is no time",
		`{"name":"a","start":"2026-13-24T18:00:00Z","duration_minutes":60}`:                                                                   "month out of range",
	} {
		_, err := Parse([]byte(`{"reservations":[` + config + `]}`))
		require.ErrorContains(t, err, problem)
	}
}
