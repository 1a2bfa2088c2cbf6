package schema_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"berth/schema"
)

// series are releases as Slurm has them.
var series = schema.Releases{
	{Series: "22.05"},
	{Series: "23.02", From: []string{"22.05"}, Step: true},
	{Series: "23.11", From: []string{"22.05", "23.02"}, Step: true},
	{Series: "24.11", From: []string{"23.02", "23.11"}},
	{Series: "26.05", From: []string{"24.11"}},
}

func TestReleases(t *testing.T) {
	for version, want := range map[string]string{"22.05.8": "22.05", "22.05": "22.05", "26.05.5": "26.05", "22.050": "", "22.5": "",
		"25.05.1": "", "": ""} {
		got := ""
		if r := series.Of(version); r != nil {
			got = r.Series
		}
		require.Equal(t, want, got, version)
	}
	require.Equal(t, []string{"22.05", "24.11", "26.05"}, series.Run())
	for _, c := range []struct {
		from, to string
		want     []string
	}{
		{"22.05", "26.05", []string{"22.05", "23.11", "24.11", "26.05"}},
		{"22.05", "24.11", []string{"22.05", "23.11", "24.11"}},
		{"22.05", "23.02", []string{"22.05", "23.02"}},
		{"24.11", "26.05", []string{"24.11", "26.05"}},
		{"24.11", "24.11", []string{"24.11"}},
		{"24.11", "22.05", nil},
		{"26.05", "24.11", nil},
		{"24.11", "99.99", nil},
	} {
		require.Equal(t, c.want, series.Path(c.from, c.to), "%s to %s", c.from, c.to)
	}
}

func TestUpgradesFollowTheWindowOfTheSoftware(t *testing.T) {
	p := catalog(nil)
	for name, version := range map[string]string{"v1": "22.05.8", "v2": "23.11.4", "v3": "26.05.5"} {
		v := p.Versions["batch"][name]
		v.Spec.Version, v.Spec.RuntimeBackend, v.Releases = version, "slurm", series
		v.Fields = append(v.Fields, schema.FieldPos{Path: "spec.version", Line: 7, Column: 12})
	}
	at := func(version string) *schema.Desired { return upgraded(p, "train", "u-1", "batch", version, false) }
	const jump = "train.yaml:7:12: error: spec.version: version v1 (22.05.8) is in force here, and v3 of batch (26.05.5, " +
		"platform/catalog/batch/v3.yaml:7) does not take over its data: " +
		"upgrade in the steps 22.05 → 23.11 → 24.11 → 26.05, each in a change of its own that comes into force before the next; change " +
		"to a version of 23.11 first [lifecycle.upgrade-window]"
	const back = "train.yaml:7:12: error: spec.version: version v3 (26.05.5) is in force here, and v1 of batch (22.05.8, " +
		"platform/catalog/batch/v1.yaml:7) does not take over its data: " +
		"there is no way back: restore a backup of before the upgrade, or create a new instance of v1 and delete this one " +
		"[lifecycle.upgrade-window]"
	const begins = "train.yaml:7:12: error: spec.version: v2 is 23.11.4, which Berth does not run and which is only a step of an " +
		"upgrade: choose a version of 22.05, 24.11, 26.05 [lifecycle.upgrade-step]"
	same := catalog(nil)
	same.Versions["batch"]["v1"].Spec = p.Versions["batch"]["v1"].Spec
	same.Versions["batch"]["v1"].Releases = series
	same.Versions["batch"]["v3"].Releases = series
	same.Versions["batch"]["v3"].Spec = schema.AppVersionSpec{Version: "22.05.9", RuntimeBackend: "slurm"}
	for _, c := range []struct {
		name          string
		before, after *schema.Desired
		want          []string
	}{
		{"one step", at("v1"), at("v2"), nil},
		{"a jump", at("v1"), at("v3"), []string{jump}},
		{"back", at("v3"), at("v1"), []string{back}},
		{"a maintenance release back", upgraded(same, "train", "u-1", "batch", "v3", false),
			upgraded(same, "train", "u-1", "batch", "v1", false), nil},
		{"a new unit of a step", &schema.Desired{}, at("v2"), []string{begins}},
		{"a new unit of a step in a tenant with others", upgraded(p, "eval", "u-2", "batch", "v1", false), at("v2"), []string{begins}},
		{"another app", upgraded(p, "train", "u-1", "stream", "v1", false), at("v2"), []string{begins}},
		{"a new unit", &schema.Desired{}, at("v3"), nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			var got []string
			for _, d := range schema.Upgrades(c.before, c.after) {
				got = append(got, d.String())
			}
			require.Equal(t, c.want, got)
		})
	}
	require.Len(t, schema.Upgrades(upgraded(p, "commons", "", "batch", "v1", true), upgraded(p, "commons", "", "batch", "v3", true)), 2,
		"the platform's and the tenant's")
	require.Len(t, schema.Upgrades(&schema.Desired{}, upgraded(p, "commons", "", "batch", "v2", true)), 2, "new ones of a step")
}
