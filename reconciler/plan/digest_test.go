package plan

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"berth/schema"
)

// Digests and ids are recorded on berth/status, in comments and on hosts. They stay
// equal across releases.
func TestDigestsAreStable(t *testing.T) {
	in := configured()
	p := Make(in)
	require.Equal(t, "c6f26df344ebb4a42352509f9fb5e23e7d90b70403b8d5cba4531bc3fcf4cc5a", p.Digest)
	require.Equal(t, "299aec6346e47c6173ce723d83d8a03c66b32e6e7d7f1f98052b247dfcce4db3", p.Observed)
	require.Equal(t, "b8dbf28e08bb", p.Actions[0].ID)

	in.Observed = Observed{Presence: Absent}
	p = Make(in)
	require.Equal(t, "9afb040483fb834dca78b800833ba1958061c114bf4d63c0648468f58bde4e1b", p.Digest)
	require.Equal(t, "cb38a36b125eb18d03aff7f10fb720f5ea5b5cda62c902b83b2b36ace933366d", p.Observed)
	var ids []string
	for _, a := range p.Actions {
		ids = append(ids, a.ID)
	}
	require.Equal(t, []string{"338432b977bc", "f2bd8b7dc4b9", "af992babe70b", "854c9ac34426"}, ids)

	in = configured()
	in.After = nil
	p = Make(in)
	require.Equal(t, "64bc1c919be88b8d9afd0734e27327bbbe1f353d2b750dd89542fc9c13318b49", p.Digest)
	require.Equal(t, "be47a40b0893", p.Actions[0].ID)

	require.Equal(t, "38e0b9de817f645c4bec37c0d4a3e58baecccb040f5718dc069a72c7385a0bed", digest(nil))
	require.Equal(t, digest(nil), digest([]string{}))
	require.Equal(t, "1b652aa9a34ce39f4a437539057b917d179214f977132edb455003d49dc99498", digest([]string{"a <b>"}))
}

// canonical writes the same bytes as decoding, sorting, pruning and encoding again, for
// any JSON configuration.
func TestCanonicalMatchesDecodePruneEncode(t *testing.T) {
	slowly := func(v any) string {
		var b bytes.Buffer
		enc := json.NewEncoder(&b)
		enc.SetEscapeHTML(false)
		require.NoError(t, enc.Encode(pruned(decode(v))))
		return strings.TrimSuffix(b.String(), "\n")
	}
	quickly := func(v any) string {
		if c := canonical(v); c != nil {
			return string(c)
		}
		return "null"
	}
	for _, raw := range []string{
		`{}`, `[]`, `null`, `0`, `""`, `[null]`, `[[],{}, [ [] ]]`, `{"a":{"b":[{}],"c":{"d":null}}}`, `{"a":[],"b":{}}`,
		`{"b":1,"a":2,"b":null}`, `{"b":null,"b":{"x":1}}`, `{"\u0061":1,"a":2}`, `{"\u00e9":1,"z":2,"é":3}`, `{"":1," ":{"":""}}`,
		`"\u003c<\u0026\u2028 \ud83d\ude00 \ud83d \/ \" \\"`, "\"\xff\u2028\x7f\"", "{\"\xfe\":1,\"\xff\":2}", `"\\"`, `{"\\\"":"\\\"}"}`,
		`-0`, `1E400`, `1.50e-7`, `[1,2.0,true,false,null,"x"]`, ` { "a" : [ 1 , { "b" : 2 } ] } `,
		strings.Repeat(`[{"a":`, 500) + `1` + strings.Repeat(`}]`, 500),
	} {
		require.Equal(t, slowly(json.RawMessage(raw)), quickly(json.RawMessage(raw)), raw)
	}
	rapid.Check(t, func(t *rapid.T) {
		var b strings.Builder
		writeJSON(t, &b, 4)
		raw := json.RawMessage(b.String())
		require.Equal(t, slowly(raw), quickly(raw), b.String())
		u := configured().Observed.Unit
		u.Effective.Config, u.Effective.DisplayName = raw, rapid.String().Draw(t, "name")
		require.Equal(t, slowly(u), quickly(u), b.String())
	})
}

// pruned returns v without null and empty values in objects.
func pruned(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for k, e := range v {
			if e = pruned(e); e == nil {
				delete(v, k)
			} else {
				v[k] = e
			}
		}
		if len(v) == 0 {
			return nil
		}
	case []any:
		if len(v) == 0 {
			return nil
		}
		for i, e := range v {
			v[i] = pruned(e)
		}
	}
	return v
}

// writeJSON writes a random value up to that depth, with irregular white space.
func writeJSON(t *rapid.T, b *strings.Builder, depth int) {
	text := func() string {
		s := rapid.OneOf(rapid.SampledFrom([]string{"a", "b", "name", "é", "<", "\u2028", `\`, `"`, "\xff"}), rapid.String()).Draw(t,
			"text")
		if rapid.Bool().Draw(t, "plain") && !strings.ContainsAny(s, "\\\"") &&
			!strings.ContainsFunc(s, func(r rune) bool { return r < ' ' }) {
			return `"` + s + `"`
		}
		raw, err := json.Marshal(s)
		require.NoError(t, err)
		return string(raw)
	}
	space := func() { b.WriteString(rapid.SampledFrom([]string{"", "", " ", "\n\t"}).Draw(t, "space")) }
	kind := rapid.IntRange(0, 6).Draw(t, "kind")
	if depth == 0 {
		kind = min(kind, 3)
	}
	space()
	defer space()
	switch kind {
	case 0:
		b.WriteString("null")
	case 1:
		b.WriteString(rapid.SampledFrom([]string{"true", "false", "0", "-1.0", "12e+3"}).Draw(t, "literal"))
	case 2, 3:
		b.WriteString(text())
	case 4:
		b.WriteByte('[')
		for i := range rapid.IntRange(0, 3).Draw(t, "elements") {
			if i > 0 {
				b.WriteByte(',')
			}
			writeJSON(t, b, depth-1)
		}
		b.WriteByte(']')
	default:
		b.WriteByte('{')
		for i := range rapid.IntRange(0, 4).Draw(t, "fields") {
			if i > 0 {
				b.WriteByte(',')
			}
			space()
			fmt.Fprintf(b, "%s:", text())
			writeJSON(t, b, depth-1)
		}
		b.WriteByte('}')
	}
}

// The difference of two units is the same with and without a comparison of equal fields.
func TestChangesCoverAllFields(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		unit := func() *Unit {
			u := configured().Observed.Unit
			u.Effective.UID = rapid.SampledFrom([]string{"", "u1"}).Draw(t, "uid")
			u.Effective.Version = rapid.SampledFrom([]string{"", "v1", "v2"}).Draw(t, "version")
			u.Effective.Regions = rapid.SampledFrom([][]string{nil, {}, {"eu-1"}}).Draw(t, "regions")
			u.Effective.Config = json.RawMessage(rapid.SampledFrom([]string{"{}", `{"a":1}`, `{"a":1,"b":{}}`, `{"a":{"b":2}}`}).Draw(t,
				"config"))
			u.Effective.Users = rapid.SampledFrom([][]schema.UnixUser{nil, {}, {{Name: "ada", UID: 1}}}).Draw(t, "users")
			u.Effective.OnJobs = rapid.SampledFrom([]*schema.OnJobs{nil, {}, {Wait: true}}).Draw(t, "on jobs")
			u.Members = u.Members[:rapid.IntRange(0, 4).Draw(t, "members")]
			return u
		}
		before, after := unit(), unit()
		old, now := fields(before), fields(after)
		differs := map[string]Change{}
		for f := range old {
			differs[f] = Change{Field: f, Before: old[f], After: now[f]}
		}
		for f := range now {
			differs[f] = Change{Field: f, Before: old[f], After: now[f]}
		}
		for f, c := range differs {
			if c.Before == c.After {
				delete(differs, f)
			}
		}
		got := map[string]Change{}
		for _, c := range changes(before, after) {
			got[c.Field] = c
		}
		require.Equal(t, differs, got)
	})
}

// BenchmarkMake measures the plan of one changed unit.
func BenchmarkMake(b *testing.B) {
	in := configured()
	b.ReportAllocs()
	for b.Loop() {
		if p := Make(in); len(p.Actions) != 1 {
			b.Fatal(p.Actions, p.Blocked)
		}
	}
}

// BenchmarkMakeUnchanged measures the plan of a unit that is as declared, which most reconciliations make.
func BenchmarkMakeUnchanged(b *testing.B) {
	in := configured()
	applied := *in.Observed.Unit
	applied.Effective, in.Observed.Unit, in.Observed.Drift = *in.After, &applied, nil
	b.ReportAllocs()
	for b.Loop() {
		if p := Make(in); len(p.Actions) != 0 {
			b.Fatal(p.Actions, p.Blocked)
		}
	}
}

// configured is a running unit with some parameters to change.
func configured() Input {
	key := schema.InstanceKey("physics", "lhc", "train")
	before := schema.EffectiveUnit{
		Key: key, DisplayName: "train & <eval>",
		AppSelection: schema.AppSelection{App: "batch", Version: "v1", RuntimeBackend: "test", OperatingMode: "dedicated",
			ControlPlaneScope: "instance", TenantBoundaryMode: "hard"}, DesiredState: schema.DesiredRunning,
		Regions: []string{"eu-1", "eu-2"},
		Roles: []schema.EffectiveRole{
			{Name: "controller", NodeRole: "controller", ControlPlane: true, Shareable: true, Count: 1},
			{Name: "worker", NodeRole: "worker", Count: 3, GPUs: &schema.GPURequest{Type: "a100", Count: 2}, CPUs: 8, MemoryMiB: 65536},
		},
		Config: json.RawMessage(
			`{"limits":{"max_time":3600,"note":"\u003cnone\u003e"},"partitions":[{"default":true,"name":"gpu"},{"name":"cpu"}],"ratio":1.50}`,
		),
		Users:  []schema.UnixUser{{Name: "ada", UID: 20001}, {Name: "grace", UID: 20002}},
		OnJobs: &schema.OnJobs{CancelAfterSeconds: 600},
	}
	after := before
	after.Config = json.RawMessage(
		`{"limits":{"max_time":7200,"note":"\u003cnone\u003e"},"partitions":[{"default":true,"name":"gpu"},{"name":"cpu"}],"ratio":1.50}`,
	)
	unit, states := &Unit{Effective: before}, []MemberState{}
	for role, name := range members(&before) {
		n := &schema.Node{Spec: schema.NodeSpec{Address: "10.0.0.1", SSHPort: 22, Region: "eu-1", SKU: "a100-2",
			Capacity: schema.Capacity{CPUs: 16, MemoryMiB: 65536,
				GPUs: []schema.GPU{{Type: "a100", Count: 4, Devices: "/dev/nvidia[0-3]"}}}}}
		n.Key.Name = "node-" + name
		unit.Members = append(unit.Members, member(role, name, n, "the best of 7 free nodes"))
		states = append(states, MemberState{Name: name, Node: n.Key.Name, State: Running, Detail: "not digested"})
	}
	return Input{Key: key, After: &after, Members: unit.Members,
		Observed: Observed{Key: key, Presence: Present, Complete: true, Unit: unit, Members: states,
			Drift: []Drift{{Member: "worker-1", What: "users", Detail: "bob"}, {What: "configuration"}}}}
}

// With SkipEmpty, an empty plan has no digests. Other plans are unchanged.
func TestEmptyPlansNeedNoDigest(t *testing.T) {
	in := configured()
	whole := Make(in)
	in.SkipEmpty = true
	require.Equal(t, whole, Make(in))
	in.After, in.Observed.Drift = &in.Observed.Unit.Effective, nil
	in.Observed.Complete = true
	p := Make(in)
	require.True(t, p.Empty())
	require.Empty(t, p.Digest+p.Observed)
}

// References are integration metadata: no digest has them, and the recorded observation drops them.
func TestReferencesAreNotDigested(t *testing.T) {
	in := configured()
	plain := Make(in)
	in.Observed.Members = append([]MemberState{}, in.Observed.Members...)
	require.NotEmpty(t, in.Observed.Members)
	in.Observed.Members[0].References = map[string]string{"node": "n1"}
	require.Nil(t, Structural(in.Observed).Members[0].References)
	with := Make(in)
	require.Equal(t, []string{plain.Digest, plain.Observed}, []string{with.Digest, with.Observed})
	raw, err := json.Marshal(in.Observed)
	require.NoError(t, err)
	require.NotContains(t, string(raw), "n1")
}
