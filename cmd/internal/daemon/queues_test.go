package daemon

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth/cmd/internal/labtest"
	"berth/examples/await"
	"berth/reconciler"
	"berth/reconciler/gitrepo"
	"berth/reconciler/gitrepo/gittest"
	"berth/reconciler/gitrepo/statusbranch"
	"berth/reconciler/plan"
	"berth/reconciler/queueing"
	"berth/runtimes/slurm/boundary"
	"berth/schema"
	"berth/schema/event"
	"berth/schema/queue"
)

// queueClient submits jobs to assembly as its owner.
type queueClient struct {
	t             *testing.T
	listen, token string
}

const assemblyJobs = "/api/v1/projects/biology.genomes/app-instances/assembly/queue/jobs"

func (q *queueClient) do(ctx context.Context, method, path string, body any, key string) (status int, text []byte) {
	data, err := json.Marshal(body)
	require.NoError(q.t, err)
	r, err := http.NewRequestWithContext(ctx, method, "http://"+q.listen+path, bytes.NewReader(data))
	require.NoError(q.t, err)
	r.Header.Set("Authorization", "Bearer "+q.token)
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Idempotency-Key", key)
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, nil
	}
	defer res.Body.Close()
	if text, err = io.ReadAll(res.Body); err != nil {
		return 0, nil
	}
	return res.StatusCode, text
}

// submitted submits until it has an answer. cut bounds the first try; 0: it is not cut off.
func (q *queueClient) submitted(key string, cut time.Duration) string {
	ctx := q.t.Context()
	if cut > 0 {
		ctx, cancel := context.WithTimeout(ctx, cut) // the moment of the cut
		q.do(ctx, "POST", assemblyJobs, queue.Request{Script: "#!/bin/sh\ntrue\n", Name: key}, key)
		cancel()
	}
	var status int
	var text []byte
	await.True(q.t, "the answer to "+key, func() bool {
		status, text = q.do(ctx, "POST", assemblyJobs, queue.Request{Script: "#!/bin/sh\ntrue\n", Name: key}, key)
		require.Contains(q.t, []int{http.StatusCreated, 0, http.StatusServiceUnavailable, http.StatusTooManyRequests,
			http.StatusUnauthorized, http.StatusNotFound}, status, "%s", text)
		return status == http.StatusCreated
	}, func() any { return fmt.Sprintf("%d %s", status, text) })
	var job queue.Job
	require.NoError(q.t, json.Unmarshal(text, &job))
	require.Equal(q.t, []any{key, "dora", "biology.genomes"}, []any{job.IdempotencyKey, job.User, job.ProjectID})
	return job.JobID
}

// Each of many submissions makes exactly one job, while connections are cut off and the daemon is killed.
func submitsOnce(t *testing.T, seed uint64, submits, cuts, kills int) {
	listen, err := labtest.FreePort()
	require.NoError(t, err)
	token := strings.Repeat("dora-", 8)
	secret := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(secret, []byte(token), 0o600))
	k := newKept(t, "north", listen, map[string]any{
		"listen": listen, "forge": nil, "authority": map[string]any{"trust_main": true},
		"api": map[string]any{"tokens": []any{map[string]any{"login": labtest.AssemblyOwner, "token": map[string]string{"file": secret}}}},
	})
	k.git.MustCommit(t, "main", gittest.Commit{Message: "add assembly", Parent: k.git.Tip("main"),
		Files: map[string]string{labtest.AssemblyFile: labtest.AssemblyYAML()}})
	q := &queueClient{t, listen, token}
	p := serveProcess(t, k.path)
	require.NotEmpty(t, q.submitted("first", 0))

	var wg sync.WaitGroup
	work, done := make(chan int), make(chan struct{})
	ids := make([]string, submits)
	for range 8 {
		wg.Go(func() {
			for i := range work {
				cut := time.Duration(0)
				if i%(submits/cuts) == 0 {
					cut = time.Duration(1+rand.New(rand.NewPCG(seed, uint64(i))).IntN(15)) * time.Millisecond
				}
				ids[i] = q.submitted(fmt.Sprintf("key-%d", i), cut)
			}
		})
	}
	go func() {
		defer close(done)
		for i := range submits {
			work <- i
			if kills > 0 && i%(submits/kills) == submits/kills/2 {
				_ = p.Process.Kill()
				_ = p.Wait()
				p = serveProcess(t, k.path)
			}
		}
		close(work)
	}()
	<-done
	wg.Wait()
	var list struct{ Items []queue.Job }
	status, text := q.do(t.Context(), "GET", assemblyJobs, nil, "")
	require.Equal(t, http.StatusOK, status, "%s", text)
	require.NoError(t, json.Unmarshal(text, &list))
	require.Len(t, list.Items, submits+1)
	seen := map[string]string{}
	for _, j := range list.Items {
		require.Empty(t, seen[j.IdempotencyKey], "%s has two jobs", j.IdempotencyKey)
		seen[j.IdempotencyKey] = j.JobID
	}
	for i, id := range ids {
		require.Equal(t, id, seen[fmt.Sprintf("key-%d", i)])
	}
	// The audit on the status branch has who submitted the last job.
	await.True(t, "the audit record of a submission", func() bool {
		repo, err := gitrepo.OpenLocal(k.git.Dir)
		require.NoError(t, err)
		defer repo.Close()
		for line, err := range repo.Audit(t.Context(), k.git.Tip(reconciler.BranchStatus), statusbranch.LogOrder{}) {
			if err == nil && line.Value.Action == "queue.submit" && line.Value.Actor == labtest.AssemblyOwner &&
				line.Value.Permission == "scheduler.queue.submit" {
				return true
			}
		}
		return false
	}, func() any { return "none of " + labtest.AssemblyOwner })
}

// Requirement B1: a submission is neither lost nor doubled.
func TestSubmitsSurviveKills(t *testing.T) {
	t.Parallel()
	submitsOnce(t, 1, 60, 12, 2)
}

// logLines keeps the lines of a log in JSON.
type logLines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logLines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

// of returns the lines with a message.
func (l *logLines) of(message string) (all []map[string]any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range bytes.Lines(l.text.Bytes()) {
		var m map[string]any
		if json.Unmarshal(line, &m) == nil && m["msg"] == message {
			all = append(all, m)
		}
	}
	return all
}

// Each submission, accepted or refused, and each change of a map is logged with the nine fields of the boundary, as
// far as they are known (requirement C6).
func TestQueueTelemetryIsLogged(t *testing.T) {
	t.Parallel()
	listen, err := labtest.FreePort()
	require.NoError(t, err)
	token := strings.Repeat("dora-", 8)
	secret := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(secret, []byte(token), 0o600))
	k := newKept(t, "north", listen, map[string]any{
		"listen": listen, "forge": nil, "authority": map[string]any{"trust_main": true}, "poll": "100ms",
		"api": map[string]any{"tokens": []any{map[string]any{"login": labtest.AssemblyOwner, "token": map[string]string{"file": secret}}}},
	})
	put := func(mode, more string) {
		k.git.MustCommit(t, "main", gittest.Commit{Message: "change the map", Parent: k.git.Tip("main"), Files: map[string]string{
			labtest.AssemblyFile: labtest.AssemblyYAML(), "platform/queues/README.md": "# How to go back\n",
			"platform/queues/genomes.yaml": "apiVersion: berth/v1\nkind: QueueMap\nmetadata: {name: genomes}\nspec:\n  app: slurm\n  " +
				"applies_to: [biology.genomes]\n  queues: [{queue: short, partition: assembly}]\n" +
				"  runbook: platform/queues/README.md\n  contract: " + boundary.Contract() + "\n  mode: " + mode + "\n" + more,
		}})
	}
	put("real-policy", "")
	lines := &logLines{}
	s, err := New([]string{k.path}, slog.New(slog.NewJSONHandler(lines, nil)))
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx, nil) }()
	t.Cleanup(func() { cancel(); <-done })

	fields := func(line map[string]any) (all []any) {
		for _, name := range []string{"tenant_id", "workspace_id", "job_id", "slurm_adapter", "slurm_contract_version",
			"requested_queue_name", "resolved_queue_name", "used_fallback"} {
			value, ok := line[name]
			require.True(t, ok, "%s in %v", name, line)
			all = append(all, value)
		}
		require.Equal(t, schema.TraceID(line["correlation_id"].(string)), line["trace_id"])
		return all
	}
	q := &queueClient{t, listen, token}
	id := q.submitted("first", 0)
	require.Equal(t, []any{"biology", "biology.genomes", id, "memory", "", "", "", false}, fields(lines.of("job submitted")[0]),
		"the memory runtime has no modes")
	status, text := q.do(t.Context(), "GET", "/api/v1/projects/biology.genomes/usage", nil, "")
	require.Equal(t, http.StatusOK, status, "%s", text)
	require.Regexp(t, `"unit":"Instance biology.genomes/assembly","app_slug":"slurm",.*"reason":"accounting does not`, string(text),
		"the memory runtime has no accounting here")
	status, text = q.do(t.Context(), "POST", assemblyJobs, queue.Request{Script: "#!/bin/sh\nfalse\n", Queue: "gpu"}, "first")
	require.Equal(t, http.StatusConflict, status, "%s", text)
	refused := lines.of("job not submitted")
	last := refused[len(refused)-1]
	require.Equal(t, []any{"biology", "biology.genomes", "", "real-policy", boundary.ContractVersion, "gpu", "", false}, fields(last))
	require.Equal(t, "idempotency key was used for another job", last["class"])

	change := []any{"biology", "biology.genomes", "", "passthrough", boundary.ContractVersion, "", "", false}
	put("passthrough", "  rollback: {owner: ops, reason: incident 7, expires_at: \"2099-12-31\", follow_up: task 12, runbook: "+
		"platform/queues/README.md}\n")
	rollback := func(what string) {
		t.Helper()
		await.Equal(t, "the line of a rollback that "+what, 1, func() int { return len(lines.of("rollback of a queue map " + what)) })
	}
	rollback("began")
	require.Equal(t, change, fields(lines.of("rollback of a queue map began")[0]))
	changed := lines.of("mode of a queue map changed")
	require.Len(t, changed, 2)
	require.Equal(t, change, fields(changed[1]))
	require.Equal(t, []any{"real-policy", "passthrough"}, []any{changed[1]["from"], changed[1]["to"]})
	put("passthrough", "")
	rollback("ended")
	require.Equal(t, change, fields(lines.of("rollback of a queue map ended")[0]))
	require.Equal(t, "ops", lines.of("rollback of a queue map ended")[0]["owner"])

	// The expiry, which takes another day.
	payload, err := json.Marshal(event.QueueMap{Status: "passthrough", Rollback: event.Rollback{Owner: "ops", ExpiresAt: "2026-11-23"},
		Telemetry: event.Telemetry{TraceID: schema.TraceID("r1"), Adapter: "passthrough"}})
	require.NoError(t, err)
	queueMapLog(slog.New(slog.NewJSONHandler(lines, nil)))(plan.Event{EventType: string(event.QueueRollbackExpired), CorrelationID: "r1",
		Payload: payload})
	expired := lines.of("rollback of a queue map has expired")
	require.Len(t, expired, 1)
	require.Equal(t, []any{"WARN", "ops", "2026-11-23"}, []any{expired[0]["level"], expired[0]["owner"], expired[0]["expires_at"]})
	require.Equal(t, []any{"", "", "", "passthrough", boundary.ContractVersion, "", "", false}, fields(expired[0]))
}

// A refused submission of each class has the mode of the map and the requested queue, and no resolved queue.
func TestRefusedSubmissionHasTheNineFields(t *testing.T) {
	m := &schema.QueueMap{Spec: schema.QueueMapSpec{App: "slurm", Mode: schema.ModeStubPolicy}}
	m.Key = schema.Key{Kind: schema.KindQueueMap, Name: "all"}
	i := &schema.Instance{Spec: schema.InstanceSpec{App: "slurm"}}
	i.Key = schema.InstanceKey("physics", "lattice", "train")
	d := &schema.Desired{Platform: &schema.Platform{},
		Tenants: map[string]*schema.TenantEstate{"physics": {Projects: map[string]*schema.ProjectEstate{"lattice": {Instances: map[string]*schema.Instance{"train": i}}}}}}
	d.Platform.Put(m)
	for _, class := range []error{queue.ErrConfiguration, queue.ErrDenied, queue.ErrUnavailable} {
		lines := &logLines{}
		logSubmission(slog.New(slog.NewJSONHandler(lines, nil)), d, queueing.Caller{Instance: i.Key, CorrelationID: "r1"}, "gpu",
			queue.Job{}, fmt.Errorf("%w: why", class))
		line := lines.of("job not submitted")[0]
		require.Equal(t, []any{"physics", "physics.lattice", "", "stub-policy", boundary.ContractVersion, "gpu", "", false,
			schema.TraceID("r1"), class.Error()},
			[]any{line["tenant_id"], line["workspace_id"], line["job_id"], line["slurm_adapter"], line["slurm_contract_version"],
				line["requested_queue_name"], line["resolved_queue_name"], line["used_fallback"], line["trace_id"], line["class"]})
	}
}
