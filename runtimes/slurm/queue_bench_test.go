package slurm_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth/reconciler/plan"
	"berth/reconciler/queueing"
	"berth/runtimes"
	"berth/schema"
	"berth/schema/audit"
	"berth/schema/queue"
	"berth/webhooks/api"
)

const aliceToken = "token-of-alice-for-the-api-of-the-benchmark"

// queueAPI serves the API for a unit of alice's project, and returns the URL of its queue.
func (c *company) queueAPI(t testing.TB, u *plan.Unit) string {
	key := u.Effective.Key
	member := schema.RoleMember{Login: "alice", Role: "project_admin", UnixUser: &alice}
	project := &schema.ProjectEstate{
		Name: key.Project, Project: &schema.Project{Header: schema.Header{Key: schema.Key{Kind: schema.KindProject, Tenant: key.Tenant,
			Name: key.Project}}},
		Roles: &schema.RoleBinding{Header: schema.Header{Key: schema.Key{Kind: schema.KindRoleBinding, Tenant: key.Tenant,
			Project: key.Project, Name: "roles"}}, Spec: schema.RoleBindingSpec{Members: []schema.RoleMember{member}}},
		Instances: map[string]*schema.Instance{key.Name: {Header: schema.Header{Key: key}, Spec: schema.InstanceSpec{App: "slurm"}}},
	}
	desired := &schema.Desired{Platform: &schema.Platform{}, Tenants: map[string]*schema.TenantEstate{key.Tenant: {
		Name: key.Tenant, Projects: map[string]*schema.ProjectEstate{key.Project: project},
		Tenant: &schema.Tenant{Header: schema.Header{Key: schema.Key{Kind: schema.KindTenant, Name: key.Tenant}}},
	}}}
	view := func() (plan.View, bool) {
		return plan.View{Desired: desired, Effective: &schema.Effective{}, Units: plan.Remember(&plan.Status{
			Key: key, EffectiveValues: plan.EffectiveValues{App: "slurm", RuntimeBackend: "slurm"},
			Observed: &plan.Observed{Presence: plan.Present, Unit: u},
		})}, true
	}
	queues := queueing.New(queueing.Options{
		View: view, Stamp: func() (runtimes.Stamp, bool) { return runtimes.Stamp{Epoch: 1}, true },
		Queues: map[string]runtimes.Queue{"slurm": c.rt},
	})
	handler, err := api.New(api.Options{
		Estate: "bench", Log: slog.New(slog.DiscardHandler), Audit: func(audit.Record) error { return nil }, Source: view,
		People: func() []api.Person { return []api.Person{{Login: "alice", Hash: sha256.Sum256([]byte(aliceToken))}} },
		Live:   func() api.Live { return api.Live{Queues: queues} },
	})
	require.NoError(t, err)
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return server.URL + "/api/v1/projects/" + key.ProjectID() + "/app-instances/" + key.Name + "/queue/jobs"
}

// ask sends a request of alice's and decodes the answer.
func ask(t testing.TB, method, url, key string, body, into any) {
	t.Helper()
	require.NoError(t, tryAsk(t, method, url, key, body, into))
}

// tryAsk is ask for a goroutine that is not that of the test.
func tryAsk(t testing.TB, method, url, key string, body, into any) error {
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	r, err := http.NewRequestWithContext(t.Context(), method, url, bytes.NewReader(text))
	if err != nil {
		return err
	}
	for name, value := range map[string]string{"Authorization": "Bearer " + aliceToken, "Content-Type": "application/json",
		"Idempotency-Key": key} {
		r.Header.Set(name, value)
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(res.Body)
	if err != nil {
		return err
	}
	if res.StatusCode >= 300 {
		return fmt.Errorf("%s: %s", res.Status, answer)
	}
	return json.Unmarshal(answer, into)
}

// p95 returns the 95th percentile of times in milliseconds.
func p95(all []float64) float64 {
	slices.Sort(all)
	return all[len(all)*95/100]
}

// timed returns the milliseconds that each line of a shell loop took on the control host.
func (c *company) timed(t testing.TB, u plan.Unit, rounds int, command string) (all []float64) {
	out := c.onControl(t, u, fmt.Sprintf(`for i in $(seq %d); do a=$(date +%%s%%N); %s >/dev/null; b=$(date +%%s%%N); echo $((b-a)); done`,
		rounds, command))
	for word := range strings.FieldsSeq(out) {
		n, err := strconv.Atoi(word)
		require.NoError(t, err)
		all = append(all, float64(n)/1e6)
	}
	require.Len(t, all, rounds)
	return all
}

// BenchmarkQueue measures submissions through the API beside sbatch on the control host, turn about, and a
// list of 10,000 jobs with long names beside squeue, and submissions while people look at the list: each is accepted.
func BenchmarkQueue(b *testing.B) {
	const rounds, perRound, jobs = 10, 10, 10_000
	for b.Loop() {
		c := &company{stage: newStageOf(b, 3)}
		c.rt = c.runtime(b)
		// slurmctld keeps 10,000 jobs by default.
		u := c.unit(strings.Replace(onePartition, "{", `{"options":{"MaxJobCount":20000},`, 1), []schema.UnixUser{alice, bob}, nil, 0)
		c.carry(b, u, false)
		url := c.queueAPI(b, &u)
		sbatch := fmt.Sprintf(
			`printf '#!/bin/sh\ntrue\n' | setpriv --reuid=%d --regid=%[1]d --clear-groups sbatch --export=NONE --chdir=/tmp --output=/dev/null`, alice.UID,
		)
		var ours, bare []float64
		for round := range rounds {
			for i := range perRound {
				began := time.Now()
				var job queue.Job
				ask(b, http.MethodPost, url, queue.NewKey(began, fmt.Sprint(round*perRound+i)), queue.Request{Script: "#!/bin/sh\ntrue\n"},
					&job)
				ours = append(ours, float64(time.Since(began).Microseconds())/1000)
			}
			bare = append(bare, c.timed(b, u, perRound, sbatch)...)
		}
		b.ReportMetric(p95(ours), "submit-ms")
		b.ReportMetric(p95(bare), "sbatch-ms")

		c.onControl(b, u, fmt.Sprintf(`for k in $(seq 8); do (for i in $(seq %d); do %s --hold --job-name=%s >/dev/null; done) & done; wait`,
			jobs/8, sbatch, strings.Repeat("n", 200)))
		var all struct{ Items []queue.Job }
		list := func(int) {
			ask(b, http.MethodGet, url+"?live=true", "", nil, &all)
			require.GreaterOrEqual(b, len(all.Items), jobs)
		}
		b.ReportMetric(milliseconds(5, list), "list-ms")
		ours = nil
		submitted := make(chan error, 1)
		go func() {
			var failed error
			for i := range perRound * 2 {
				began := time.Now()
				var job queue.Job
				failed = errors.Join(failed, tryAsk(b, http.MethodPost, url, queue.NewKey(began, fmt.Sprint("beside", i)),
					queue.Request{Script: "#!/bin/sh\ntrue\n"}, &job))
				ours = append(ours, float64(time.Since(began).Microseconds())/1000)
			}
			submitted <- failed
		}()
		for done := false; !done; {
			list(0) // people look at it
			select {
			case err := <-submitted:
				require.NoError(b, err)
				done = true
			default:
			}
		}
		b.ReportMetric(p95(ours), "submit-beside-ms")
		b.ReportMetric(p95(c.timed(b, u, 5, "squeue --all")), "squeue-ms")
		c.onControl(b, u, "scancel --user="+alice.Name)
	}
}
