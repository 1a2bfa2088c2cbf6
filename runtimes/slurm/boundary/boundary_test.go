package boundary

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"berth/schema"
	"berth/schema/queue"
)

var update = flag.Bool("update", false, "write the page of the contract")

func mapOf(fallback string, queues ...schema.QueueMapping) *schema.QueueMap {
	m := &schema.QueueMap{Spec: schema.QueueMapSpec{App: "slurm", Queues: queues, FallbackQueue: fallback}}
	m.Key = schema.Key{Kind: schema.KindQueueMap, Name: "everybody"}
	return m
}

func gpu() schema.QueueMapping {
	return schema.QueueMapping{Queue: "gpu", Partition: "a100", Account: "physics.lattice", QOS: "high", MaxWalltimeMinutes: 60}
}

func short() schema.QueueMapping { return schema.QueueMapping{Queue: "short", Partition: "all"} }

func present(queue.Mapping) error { return nil }

// The fields of the answer and their names are the contract (C1).
func TestResolutionHasTheFieldsOfTheContract(t *testing.T) {
	r, err := Resolve(RealPolicy, mapOf("short", gpu(), short()), "gpu", present)
	require.NoError(t, err)
	got, err := json.Marshal(r)
	require.NoError(t, err)
	require.JSONEq(t, `{"adapter":"real-policy","contract_version":"slurm-adapter-boundary/v1","requested_queue":"gpu","resolved_queue":"gpu","used_fallback":false,
		"mapping":{"queue":"gpu","partition":"a100","account":"physics.lattice","qos":"high","max_walltime_minutes":60}}`, string(got))
	r, err = Resolve(Passthrough, nil, "_debug,gpu", nil)
	require.NoError(t, err)
	require.Equal(t, "_debug,gpu", r.ResolvedQueue, "sbatch takes a list")
	r, err = Resolve(Passthrough, nil, "gpu", nil)
	require.NoError(t, err)
	got, err = json.Marshal(r)
	require.NoError(t, err)
	require.JSONEq(t, `{"adapter":"passthrough","contract_version":"slurm-adapter-boundary/v1","requested_queue":"gpu","resolved_queue":"gpu","used_fallback":false,"mapping":null}`, string(got))
}

// A request is resolved by the map or fails with one class of error; the queue is never changed silently
// (C3).
func TestErrorsHaveClasses(t *testing.T) {
	down := errors.New("connection refused")
	unknown := fmt.Errorf("%w: Slurm has no partition a100", queue.ErrConfiguration)
	for name, c := range map[string]struct {
		mode      Mode
		m         *schema.QueueMap
		requested string
		confirm   Confirm
		want      error
	}{
		"unknown mode":                 {"real", mapOf("", gpu()), "gpu", present, queue.ErrConfiguration},
		"no map":                       {StubPolicy, nil, "gpu", nil, queue.ErrConfiguration},
		"fallback not in the map":      {StubPolicy, mapOf("slow", gpu()), "other", nil, queue.ErrConfiguration},
		"queue without a partition":    {StubPolicy, mapOf("", gpu(), schema.QueueMapping{Queue: "x"}), "gpu", nil, queue.ErrConfiguration},
		"queue that is not in the map": {StubPolicy, mapOf("", gpu()), "other", nil, queue.ErrDenied},
		"no default":                   {RealPolicy, mapOf("", gpu()), "", present, queue.ErrDenied},
		"not a name":                   {Passthrough, nil, "gpu\n--uid=0", nil, queue.ErrDenied},
		"several queues of a map":      {StubPolicy, mapOf("gpu", gpu()), "gpu,cpu", nil, queue.ErrDenied},
		"no name in a list":            {Passthrough, nil, "gpu,", nil, queue.ErrDenied},
		"an option as a name":          {Passthrough, nil, "--uid=0", nil, queue.ErrDenied},
		"scheduler down": {RealPolicy, mapOf("short", gpu(), short()), "gpu", func(queue.Mapping) error { return down },
			queue.ErrUnavailable},
		"no scheduler": {RealPolicy, mapOf("", gpu()), "gpu", nil, queue.ErrUnavailable},
		"partition missing": {RealPolicy, mapOf("short", gpu(), short()), "gpu", func(queue.Mapping) error { return unknown },
			queue.ErrConfiguration},
	} {
		r, err := Resolve(c.mode, c.m, c.requested, c.confirm)
		require.ErrorIs(t, err, c.want, name)
		require.Zero(t, r, "%s: no queue beside an error", name)
		for _, other := range []error{queue.ErrConfiguration, queue.ErrDenied, queue.ErrUnavailable} {
			require.Equal(t, other == c.want, errors.Is(err, other), "%s: one class", name)
		}
	}
}

// For every map and request, stub-policy and real-policy with a healthy scheduler give the same answer but
// for the name of the mode, and neither changes the map (C7).
func TestStubAndRealPolicyAgree(t *testing.T) {
	name := rapid.SampledFrom([]string{"", "gpu", "short", "long", "night", "no/name"})
	rapid.Check(t, func(t *rapid.T) {
		var queues []schema.QueueMapping
		for _, n := range rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"gpu", "short", "long"}), 0, 3,
			func(s string) string { return s }).Draw(t, "queues") {
			queues = append(queues, schema.QueueMapping{
				Queue: n, Partition: rapid.SampledFrom([]string{"", "p", "q", "r"}).Draw(t, "partition"),
				Account:            rapid.SampledFrom([]string{"", "a.b"}).Draw(t, "account"),
				QOS:                rapid.SampledFrom([]string{"", "high"}).Draw(t, "qos"),
				MaxWalltimeMinutes: rapid.IntRange(0, 90).Draw(t, "minutes"),
			})
		}
		m := mapOf(name.Draw(t, "fallback"), queues...)
		before, err := json.Marshal(m)
		require.NoError(t, err)
		requested, minutes := name.Draw(t, "requested"), rapid.IntRange(-1, 120).Draw(t, "asked")
		stub, stubErr := Resolve(StubPolicy, m, requested, nil)
		actual, realErr := Resolve(RealPolicy, m, requested, present)
		require.Equal(t, fmt.Sprint(stubErr), fmt.Sprint(realErr))
		after, err := json.Marshal(m)
		require.NoError(t, err)
		require.Equal(t, before, after)
		if stubErr != nil {
			return
		}
		stubMinutes, stubErr := Minutes(stub, minutes)
		realMinutes, realErr := Minutes(actual, minutes)
		require.Equal(t, stubMinutes, realMinutes)
		require.Equal(t, fmt.Sprint(stubErr), fmt.Sprint(realErr))
		actual.Adapter = stub.Adapter
		require.Equal(t, stub, actual)
		require.Equal(t, stub.ResolvedQueue != requested, stub.UsedFallback, "used_fallback marks each change of the queue")
		require.True(t, slices.ContainsFunc(m.Spec.Queues, func(q schema.QueueMapping) bool { return q.Queue == stub.ResolvedQueue }))
	})
}

func TestTimeLimitIsThatOfTheQueue(t *testing.T) {
	r, err := Resolve(StubPolicy, mapOf("", gpu(), short()), "gpu", nil)
	require.NoError(t, err)
	for asked, want := range map[int]int{0: 60, 1: 1, 60: 60} {
		got, err := Minutes(r, asked)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	_, err = Minutes(r, 61)
	require.ErrorIs(t, err, queue.ErrDenied)
	unlimited, err := Resolve(StubPolicy, mapOf("", gpu(), short()), "short", nil)
	require.NoError(t, err)
	got, err := Minutes(unlimited, 1000)
	require.NoError(t, err)
	require.Equal(t, 1000, got)
}

// real-policy serves only if each of the five preconditions holds, with evidence (C4).
func TestEachPreconditionIsNeeded(t *testing.T) {
	var all []queue.Evidence
	for _, p := range Preconditions() {
		all = append(all, Proof(p, true, "seen", ""))
	}
	require.Len(t, all, 5)
	require.NoError(t, Ready(all))
	for i, p := range Preconditions() {
		for name, one := range map[string][]queue.Evidence{"absent": nil, "fails": {Proof(p, false, "", "no answer")},
			"shows nothing": {Proof(p, true, "", "")}} {
			some := slices.Concat(all[:i], one, all[i+1:])
			err := Ready(some)
			want := queue.ErrUnavailable
			if name == "fails" && (p == PolicyValid || p == RunbookPublished) {
				want = queue.ErrConfiguration
			}
			require.ErrorIs(t, err, want, "%s %s", p, name)
			require.ErrorContains(t, err, string(p))
		}
	}
}

// The nine fields have their names, and a trace id has the form of W3C (C6).
func TestFieldsOfObservability(t *testing.T) {
	r, err := Resolve(StubPolicy, mapOf("short", gpu(), short()), "night", nil)
	require.NoError(t, err)
	require.Equal(t, []any{
		"trace_id", schema.TraceID("r0123456789"), "tenant_id", "physics", "workspace_id", "physics.lattice", "job_id", "17",
		"slurm_adapter", "stub-policy",
		"slurm_contract_version", ContractVersion, "requested_queue_name", "night", "resolved_queue_name", "short", "used_fallback", true,
	}, Fields(r, "physics.lattice", "17", "r0123456789"))
	for _, id := range []string{"r0123456789", "", strings.Repeat("0", 32), strings.Repeat("A", 32)} {
		require.Regexp(t, `^[0-9a-f]{32}$`, schema.TraceID(id))
		require.NotEqual(t, strings.Repeat("0", 32), schema.TraceID(id))
	}
	require.Equal(t, strings.Repeat("ab", 16), schema.TraceID(strings.Repeat("ab", 16)))
}

// A change of a map has the nine fields too, in the same order, and so has a refused submission; the page of the
// contract lists them (C6).
func TestEachLineHasTheNineFields(t *testing.T) {
	names := func(fields []any) (all []string) {
		for i := 0; i < len(fields); i += 2 {
			all = append(all, fields[i].(string))
		}
		return all
	}
	var page []string
	for _, f := range fieldTable() {
		page = append(page, f.name)
	}
	require.Len(t, page, 9)
	require.Equal(t, page, names(Fields(queue.Resolution{}, "", "", "")))
	require.Equal(t, page, names(ChangeFields("", "", "", "")))
	require.Equal(t, []any{"trace_id", "t", "tenant_id", "physics", "workspace_id", "", "job_id", "", "slurm_adapter", "",
		"slurm_contract_version", ContractVersion}, ChangeFields("", "physics", "", "t")[:12])
	require.Equal(t, queue.Resolution{Adapter: "passthrough", ContractVersion: ContractVersion, RequestedQueue: "gpu"},
		Attempted(nil, "gpu"))
	real := mapOf("")
	real.Spec.Mode = schema.ModeRealPolicy
	require.Equal(t, "real-policy", Attempted(real, "gpu").Adapter)
}

// The digest is that of the text, and the page states it.
func TestContractNamesItsText(t *testing.T) {
	require.Regexp(t, `^slurm-adapter-boundary/v1\+[0-9a-f]{12}$`, Contract())
	require.True(t, strings.HasPrefix(string(Page()), text()))
	require.Contains(t, string(Page()), "\n"+Contract()+"\n")
	sum := sha256.Sum256([]byte(text()))
	require.True(t, strings.HasSuffix(Contract(), "+"+hex.EncodeToString(sum[:])[:12]))
}

// The page of the contract is the one that the code makes (C7).
func TestContractPageMatchesCode(t *testing.T) {
	const path = "../../../deploy/reference/slurm-adapter-boundary-v1.md"
	if *update {
		require.NoError(t, os.WriteFile(path, Page(), 0o644))
	}
	page, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, string(Page()), string(page), "run make reference")
	for _, f := range reflect.VisibleFields(reflect.TypeOf(queue.Resolution{})) {
		require.Contains(t, string(page), "`"+f.Tag.Get("json")+"`")
	}
	for _, f := range reflect.VisibleFields(reflect.TypeOf(queue.Mapping{})) {
		require.Contains(t, string(page), "`"+f.Tag.Get("json")+"`")
	}
}
