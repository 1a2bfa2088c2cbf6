package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/cmd/internal/labtest"
	"berth/examples/await"
	"berth/reconciler/plan"
)

// runbookStep is a command of deploy/runbook.md, and the lines that the page says people see.
type runbookStep struct {
	title, command string
	sees           []string
}

// runbook reads the steps of deploy/runbook.md: each section's commands, without the block that sets the
// variables. A block of text after a command is what people see.
func runbook(t testing.TB) []runbookStep {
	t.Helper()
	page, err := os.ReadFile("../../deploy/runbook.md")
	require.NoError(t, err)
	var steps []runbookStep
	for _, section := range strings.Split(string(page), "\n## ")[1:] {
		title, text, _ := strings.Cut(section, "\n")
		for _, block := range regexp.MustCompile("(?s)```(text)?\n(.*?)```").FindAllStringSubmatch(text, -1) {
			if block[1] == "" {
				steps = append(steps, runbookStep{title: title, command: block[2]})
				continue
			}
			require.NotEmpty(t, steps, title)
			steps[len(steps)-1].sees = strings.Split(strings.TrimSpace(block[2]), "\n")
		}
	}
	require.Len(t, steps, 5, "log, ledger, trace, timeline and the trace of the change")
	return steps
}

// triage runs the commands of the runbook as they are written, with an id and an instance, and returns what each
// printed by its section.
func (s *stage) triage(t testing.TB, id, instance string) (printed []string) {
	t.Helper()
	programsDir := t.TempDir()
	// The daemon of the test does not run as a unit of systemd.
	journal := fmt.Sprintf("#!/bin/sh\n[ \"$*\" = '-u berth -o cat' ] && exec cat %s\nexit 9\n", filepath.Join(s.dir, "berth.log"))
	require.NoError(t, os.WriteFile(filepath.Join(programsDir, "journalctl"), []byte(journal), 0o700))
	for _, step := range runbook(t) {
		cmd := exec.CommandContext(t.Context(), "bash", "-eu", "-o", "pipefail", "-c", step.command)
		cmd.Dir = t.TempDir()
		cmd.Env = append(os.Environ(), "PATH="+programsDir+":"+filepath.Dir(s.berth)+":"+os.Getenv("PATH"),
			"ID="+id, "INSTANCE="+instance, "CONFIG="+filepath.Join(s.dir, "berth.yaml"))
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s:\n%s\n%s", step.title, step.command, out)
		printed = append(printed, string(out))
	}
	return printed
}

// sees checks that each line that the page shows is in the output of its command.
func sees(t testing.TB, printed []string) {
	t.Helper()
	for i, step := range runbook(t) {
		for _, line := range step.sees {
			parts := strings.Split(line, "…")
			for k := range parts {
				parts[k] = strings.Join(strings.Fields(regexp.QuoteMeta(parts[k])), " +")
			}
			require.Regexp(t, "(?m)^ *"+strings.Join(parts, ".*"), printed[i], step.title)
		}
	}
}

// apiError is an error of the API.
type apiError struct {
	Code          string
	CorrelationID string `json:"correlation_id"`
}

// requestJob submits a job as a program does, once, and returns the error of the API.
func (s *stage) requestJob(ctx context.Context) (refused apiError, err error) {
	url := "http://" + s.daemon.listen + "/api/v1/projects/" + labtest.Train.ProjectID() + "/app-instances/" + labtest.Train.Name +
		"/queue/jobs"
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(`{"script":"#!/bin/sh\ntrue\n"}`))
	if err != nil {
		return refused, err
	}
	req.Header.Set("Authorization", "Bearer "+userToken)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Idempotency-Key", "incident")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return refused, err
	}
	defer res.Body.Close()
	answer := struct{ Error *apiError }{&refused}
	err = json.NewDecoder(res.Body).Decode(&answer)
	return refused, err
}

// without moves a program of a host away and kills its daemon, so that it cannot start again until
// the program is back.
func (s *scene) without(node, program, pidFile string) (back func()) {
	s.Helper()
	path := s.on(node, "readlink -f $(PATH=$PATH:/usr/sbin command -v "+program+")")
	s.on(node, "mv "+path+" "+path+".away; kill -9 $(cat "+pidFile+")")
	return func() { s.on(node, "mv "+path+".away "+path) }
}

// failed waits until train has failed and its event is published.
func (s *scene) failed() plan.Status {
	s.Helper()
	events := len(s.told())
	var st plan.Status
	s.eventually("train has failed", func() string {
		if st = s.statusOf(labtest.Train); st.Phase != plan.PhaseFailed || len(s.told()) == events &&
			!strings.Contains(strings.Join(s.toldOf(labtest.Train, 0), " "), "failed") {
			return show(st)
		}
		return ""
	})
	return st
}

// The steps also lead from a merge without permission to the held change and the person who made it. This
// needs no hosts.
func TestRunbookOfAHeldChange(t *testing.T) {
	t.Parallel()
	st, err := newStage(demoOptions{dir: t.TempDir(), berth: filepath.Join(programs, "berth"), memory: true, patience: await.Limit})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, st.close()) })
	ctx := t.Context()
	require.NoError(t, st.remote.open(st.dir, st.files))
	require.NoError(t, st.startDaemon(ctx))
	for _, change := range []struct {
		login   string
		workers int
	}{{labtest.ProjectAdmin, 1}, {labtest.ProjectMember, 2}} { // a member may not change it
		pull, err := st.propose(change.login, "train by "+change.login, change.login, train(change.workers))
		require.NoError(t, err)
		commit, err := st.merge(ctx, pull, change.login)
		require.NoError(t, err)
		_, err = st.decided(ctx, commit)
		require.NoError(t, err)
		_, err = st.untilPhase(ctx, labtest.Train, plan.PhaseRunning)
		require.NoError(t, err)
	}
	tree, err := st.statusTree(ctx)
	require.NoError(t, err)
	require.Len(t, tree.Revision.Held, 1)
	var id string
	log := filepath.Join(st.dir, "berth.log")
	await.True(t, "the held change in the log", func() bool {
		text, err := os.ReadFile(log)
		require.NoError(t, err)
		if m := regexp.MustCompile(`"msg":"document held".*"correlation_id":"(\w+)"`).FindSubmatch(text); m != nil {
			id = string(m[1])
		}
		return id != ""
	}, func() any { return lastLines(log, 20) })
	printed := st.triage(t, id, instanceArgument(labtest.Train))
	require.Contains(t, printed[0], `"msg":"document held"`)
	require.Contains(t, printed[1], "hosts     not asked for their ledgers: ")
	require.Regexp(t, `(?m)^commit .*, by ben-lattice `, printed[2])
	require.Contains(t, printed[2], "  held    "+labtest.TrainFile+": unauthorised: ")
	require.Regexp(t, `(?m)^audit .*denied +ben-lattice `, printed[2])
	require.Contains(t, printed[3], "apps.instance.running")
	require.NotContains(t, printed[3], id, "nothing happened to the instance")
	require.NotContains(t, printed[4], "ben-lattice", "the instance follows the change before it")
}
