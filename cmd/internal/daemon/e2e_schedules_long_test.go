//go:build long

package daemon

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	"sigs.k8s.io/yaml"

	"berth/cmd/internal/labtest"
	"berth/examples/await"
	"berth/examples/explore"
	"berth/reconciler"
	"berth/reconciler/gitrepo/gittest"
	"berth/reconciler/plan"
	"berth/webhooks/github"
	"berth/webhooks/github/githubtest"
)

// playSchedules plays the fields of these numbers, or the one that BERTH_SCHEDULE
// names, and compares each with the field without faults. Each has as many pull
// requests as lives.
func playSchedules(t *testing.T, fields []int, lives int) {
	t.Helper()
	field, life, err := schedulesOf(os.Getenv("BERTH_SCHEDULE"))
	require.NoError(t, err)
	if field > 0 {
		fields = []int{field}
	}
	s := newSaga(t, lives)
	want := newField(t, s, 0, 0).play(nil)
	all := show(want[len(want)-1])
	for _, words := range []string{"Creates `physics.lattice/", "eletes", "dislpay_name", "1 instance running", "max_gpus_per_instance",
		"no file of the estate changes"} {
		require.True(t, strings.Contains(all, words), "of %q nothing came about", words)
	}
	// More side by side than there are cores: a field waits most of its time.
	var side errgroup.Group
	side.SetLimit(4)
	for _, n := range fields {
		side.Go(func() error {
			t.Run(strconv.Itoa(n), func(t *testing.T) { newField(t, s, n, life).play(want) })
			return nil
		})
	}
	require.NoError(t, side.Wait())
}

// schedulesOf reads "field" or "field/pull"; 0 is all.
func schedulesOf(s string) (field, pull int, err error) {
	if s == "" {
		return 0, 0, nil
	}
	of, one, found := strings.Cut(s, "/")
	if field, err = strconv.Atoi(of); err == nil && found {
		pull, err = strconv.Atoi(one)
	}
	return field, pull, err
}

// saga is the list of actions of all users. It is created once, with its commits,
// so that it is identical in every field.
type saga struct {
	git   *gittest.Server // has all commits
	main  string
	lives []*life // the pull request of the first is 1
	acts  [3][]act
}

// life is what becomes of one pull request.
type life struct {
	pull    int
	author  string
	fate    fate
	commits []string // commits of its branch, oldest first
}

func (l *life) branch() string { return fmt.Sprintf("life-%02d", l.pull) }

// fate is the end of a pull request. Users merge or close it after they have seen its checks.
type fate string

const (
	stays  fate = "stays"
	merged fate = "merged" // if its checks pass; so is queued
	queued fate = "queued"
	closed fate = "closed"
	moves  fate = "moves" // merged at once, so that main moves under the others
)

// act is one action of a user.
type act struct {
	*life
	do   string
	word int // which of several: a commit, a title
}

const sagaAt = "tenants/physics/projects/lattice/instances/"

// sagaTexts are instances, in the order in which they are likely.
var sagaTexts = map[string]string{
	"plain": "  display_name: Cluster NAME\n  roles:\n    worker:\n      count: 0\n",
	"other": "  display_name: Another name of NAME\n  roles:\n    worker:\n      count: 0\n",
	"config": "  display_name: Cluster NAME\n  roles:\n    worker:\n      count: 0\n  config:\n    partitions:\n      - name: quick\n    " +
		"    default: true\n        max_time_minutes: 30\n",
	"broken": "  dislpay_name: Cluster NAME\n  roles:\n    worker:\n      count: 0\n",
	"greedy": "  display_name: Cluster NAME\n  roles:\n    worker:\n      count: 1\n      gpus:\n        type: a100\n        count: 16\n",
}

// newSaga thinks it up and makes the commits.
func newSaga(t *testing.T, lives int) *saga {
	s, r := &saga{git: gittest.New(t, nil)}, rand.New(rand.NewPCG(4, 1))
	files := labtest.Files()
	const limits, ours = "platform/policy/lab.yaml", "tenants/physics/policy.yaml"
	files[limits] = strings.Replace(files[limits], "max_instances_per_project: 3", "max_instances_per_project: 100", 1)
	text := func(name, kind string) string {
		return "apiVersion: berth/v1\nkind: Instance\nmetadata:\n  name: " + name + "\nspec:\n  app: slurm\n  version: 22-05\n" +
			strings.ReplaceAll(sagaTexts[kind], "NAME", name)
	}
	var commits []*bytes.Buffer
	commit := func(branch, message string, from int, change map[string]string) int {
		var in bytes.Buffer
		fmt.Fprintf(&in, "commit refs/heads/%s\nmark :%d\ncommitter Ada <ada@example.org> 1800000000 +0000\ndata %d\n%s\n", branch,
			len(commits)+1, len(message), message)
		if from > 0 {
			fmt.Fprintf(&in, "from :%d\n", from)
		}
		for _, name := range slices.Sorted(maps.Keys(change)) {
			if text := change[name]; text != "" {
				fmt.Fprintf(&in, "M 100644 inline %s\ndata %d\n%s\n", name, len(text), text)
			} else {
				fmt.Fprintf(&in, "D %s\n", name)
			}
		}
		commits = append(commits, &in)
		return len(commits)
	}
	instance := func(l *life) (name, file string, there bool) {
		name = fmt.Sprintf("l%02d", l.pull)
		return name, sagaAt + name + ".yaml", l.pull%4 == 0
	}
	for n := range lives {
		l := &life{pull: n + 1, author: []string{labtest.ProjectAdmin, labtest.ProjectAdmin, labtest.ProjectMember}[r.IntN(3)],
			fate: []fate{stays, stays, merged, closed}[r.IntN(4)]}
		if n < 2 {
			l.author, l.fate = "petra-phys", moves // who owns the tenant
		} else if n%17 == 5 {
			l.fate = queued
		}
		s.lives = append(s.lives, l)
		if name, file, there := instance(l); there {
			files[file] = text(name, "plain")
		}
	}
	begin := commit("main", "begin", 0, files)
	marks := map[*life][]int{}
	for _, l := range s.lives {
		name, file, there := instance(l)
		kinds := []string{"plain", "plain", "config", "broken", "greedy", "words"}
		switch {
		case l.pull == 1: // nothing of Berth's changes
			kinds = []string{"words"}
		case l.pull == 2: // changes the policy, and so the findings of every greedy change
			kinds = []string{"policy"}
		case there:
			kinds = []string{"other", "config", "config", "gone", "gone", "broken", "words"}
		}
		from, count := begin, 1+r.IntN(3)
		if l.fate == moves {
			count = 1
		}
		for i := range count {
			kind := kinds[r.IntN(len(kinds))]
			change := map[string]string{file: text(name, kind)}
			switch kind {
			case "words":
				change = map[string]string{"docs/" + name + ".md": fmt.Sprintln(i)}
			case "policy":
				change = map[string]string{ours: strings.Replace(files[ours], "max_gpus_per_instance: 6", "max_gpus_per_instance: 5", 1)}
			case "gone":
				change = map[string]string{file: ""}
			}
			if r.IntN(3) == 0 {
				from = begin // replaces the branch by a force push
			}
			at := commit(l.branch(), fmt.Sprintf("%s, %d: %s", name, i, kind), from, change)
			marks[l] = append(marks[l], at)
			if kind == "gone" {
				at = begin // a file cannot be deleted twice
			}
			from = at
		}
	}
	var in bytes.Buffer
	in.WriteString("feature done\n")
	for _, c := range commits {
		in.Write(c.Bytes())
	}
	in.WriteString("done\n")
	file := filepath.Join(t.TempDir(), "marks")
	_, err := s.git.GitInput(&in, "fast-import", "--quiet", "--force", "--export-marks="+file)
	require.NoError(t, err)
	data, err := os.ReadFile(file)
	require.NoError(t, err)
	ids := map[int]string{}
	for line := range strings.Lines(string(data)) {
		var mark int
		var id string
		_, err := fmt.Sscanf(line, ":%d %s", &mark, &id)
		require.NoError(t, err)
		ids[mark] = id
	}
	s.main = ids[begin]

	// Every life opens its pull request in the first act. The other actions are
	// spread over three acts, in their order.
	var parts [3][][]act
	for _, l := range s.lives {
		s.acts[0] = append(s.acts[0], act{l, "open", 0})
		var own []act
		for i, m := range marks[l] {
			l.commits = append(l.commits, ids[m])
			if i > 0 {
				own = append(own, act{l, "push", i})
			}
			for l.fate != moves && r.IntN(2) == 0 {
				own = append(own, act{l, []string{"again", "approve", "approve", "retitle", "reopen"}[r.IntN(5)], r.IntN(100)})
			}
		}
		cut := []int{r.IntN(len(own) + 1), r.IntN(len(own) + 1)}
		if l.fate != stays { // its pull request ends after the second act
			cut[1] = len(own)
		}
		slices.Sort(cut)
		for i, part := range [][]act{own[:cut[0]], own[cut[0]:cut[1]], own[cut[1]:]} {
			parts[i] = append(parts[i], part)
		}
	}
	for i, part := range parts {
		for {
			part = slices.DeleteFunc(part, func(as []act) bool { return len(as) == 0 })
			if len(part) == 0 {
				break
			}
			one := &part[r.IntN(len(part))]
			s.acts[i] = append(s.acts[i], (*one)[0])
			*one = (*one)[1:]
		}
	}
	return s
}

// field is where a saga is played.
type field struct {
	*testing.T
	*saga
	n, only int // which it is, 0 being calm; and to which pull request alone something happens, 0 being all
	dir     string
	listen  string
	git     *gittest.Server
	forge   *githubtest.Server
	estates *Daemon
	said    *sink
	stop    func()
	weather map[int]githubtest.Schedule // by pull request; 0 is what is nobody's
	rand    *rand.Rand
}

const fieldSecret = "the field's secret"

func newField(t *testing.T, s *saga, n, only int) *field {
	f := &field{T: t, saga: s, n: n, only: only, dir: t.TempDir(), git: gittest.New(t, nil), weather: map[int]githubtest.Schedule{},
		rand: rand.New(rand.NewPCG(uint64(n), 0))}
	// All objects are in the alternate; a push only moves refs.
	require.NoError(t, os.WriteFile(filepath.Join(f.git.Dir, "objects", "info", "alternates"),
		[]byte(filepath.Join(s.git.Dir, "objects")+"\n"), 0o600))
	require.NoError(t, f.git.SetRef("refs/heads/main", s.main))
	var err error
	f.listen, err = labtest.FreePort()
	require.NoError(t, err)
	const many = 1 << 20 // no limit, as on a GitHub Enterprise Server
	f.forge, err = githubtest.New(githubtest.Options{
		RepoDir: f.git.Dir, Owner: "example", Repo: "estate", Secret: []byte(fieldSecret), Log: slog.New(slog.DiscardHandler),
		Tokens:      map[string]githubtest.Token{labtest.Token: {Login: labtest.App, App: true}},
		Permissions: map[string]string{labtest.ProjectAdmin: "write", labtest.ProjectMember: "write", "petra-phys": "admin"},
		Required:    []string{plan.CheckValidate, plan.CheckPlan},
		Limits:      githubtest.Limits{PerHour: many, ContentPerMinute: many, ContentPerHour: many, PointsPerMinute: many},
		WebhookURL:  "http://" + f.listen + "/webhooks/github",
	})
	require.NoError(t, err)
	t.Cleanup(f.forge.Close)
	secret := func(name, text string) map[string]string {
		path := filepath.Join(f.dir, name)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return map[string]string{"file": path}
	}
	config, err := yaml.Marshal(map[string]any{
		"estate": "field", "listen": f.listen,
		"repository": map[string]any{"url": f.git.URL, "directory": filepath.Join(f.dir, "mirror")},
		"authority":  map[string]any{"administrators": []string{labtest.Administrator}},
		"forge": map[string]any{"kind": "github",
			"api_url": f.forge.APIURL(), "owner": "example", "repository": "estate", "login": labtest.App + "[bot]", "report": "checks",
			"token": secret("token", labtest.Token), "webhook_secret": secret("secret", fieldSecret),
		},
		"memory_runtime": map[string]any{"directory": filepath.Join(f.dir, "world"), "backends": []string{"slurm"}},
		"interval":       "10m", "poll": "1s", "flush_window": "100ms",
	})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(f.dir, "berth.yaml"), config, 0o600))
	if n > 0 {
		f.disturb()
	}
	f.said = &sink{}
	t.Cleanup(func() {
		if t.Failed() {
			path := filepath.Join(os.TempDir(), fmt.Sprintf("berth-schedule-%d.log", n))
			_ = os.WriteFile(path, []byte(f.said.String()), 0o600)
			t.Logf("BERTH_SCHEDULE=%d; the daemon's log is in %s", n, path)
		}
	})
	f.serve()
	return f
}

// serve runs the daemon until the test ends or stop is called.
func (f *field) serve() {
	f.Helper()
	s, err := New([]string{filepath.Join(f.dir, "berth.yaml")}, slog.New(slog.NewJSONHandler(f.said, nil)))
	require.NoError(f, err)
	s.all[0].config.Load().limiter = &github.Pacer{}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx, nil) }()
	f.estates = s
	f.stop = sync.OnceFunc(func() {
		cancel()
		require.NoError(f, <-ended)
	})
	f.Cleanup(f.stop)
	await.True(f, "a daemon that is ready", func() bool { return s.ready() == nil },
		func() any { return fmt.Sprint(s.ready(), "\n", lastLines(f.said)) })
}

// disturb draws the faults of each pull request and of main.
func (f *field) disturb() {
	storms := f.n%2 == 1 && f.only == 0
	if storms {
		f.forge.SetStorm(githubtest.RandomStorm(rand.New(rand.NewPCG(uint64(f.n), 1)), 0.02))
	}
	for pull := range len(f.lives) + 1 {
		r := rand.New(rand.NewPCG(uint64(f.n), 100+uint64(pull)))
		w := githubtest.Weather{Lost: 0.3 * r.Float64(), Fails: 0.2 * r.Float64(), Unheard: 0.2 * r.Float64(), Doubled: 0.4 * r.Float64(),
			Late: 0.6 * r.Float64(), Behind: 1 + r.IntN(40)}
		if r.IntN(8) == 0 {
			w.Lost = 1
		}
		if f.only == 0 || f.only == pull {
			f.weather[pull] = githubtest.RandomSchedule(r, w)
		}
	}
	f.forge.SetSchedule(func(d githubtest.Delivery) []githubtest.Attempt {
		if how := f.weather[f.whose(d)]; how != nil {
			return how(d)
		}
		return []githubtest.Attempt{{}}
	})
}

// whose pull request an event is about; 0: nobody's.
func (f *field) whose(d githubtest.Delivery) int {
	var e struct {
		Number               int
		Ref                  string
		Issue, PullRequest   struct{ Number int }
		CheckRun, CheckSuite struct {
			HeadSHA string `json:"head_sha"`
		}
		MergeGroup struct {
			HeadRef string `json:"head_ref"`
		} `json:"merge_group"`
	}
	var raw map[string]json.RawMessage
	if json.Unmarshal(d.Body, &raw) != nil || json.Unmarshal(d.Body, &e) != nil {
		return 0
	}
	for field, into := range map[string]any{"pull_request": &e.PullRequest, "check_run": &e.CheckRun, "check_suite": &e.CheckSuite} {
		if raw[field] != nil && json.Unmarshal(raw[field], into) != nil {
			return 0
		}
	}
	var of int
	if m := regexp.MustCompile(`/(?:life-|main/pr-)(\d+)`).FindStringSubmatch(e.Ref + e.MergeGroup.HeadRef); m != nil {
		of, _ = strconv.Atoi(m[1])
	}
	for _, n := range []int{e.Number, e.PullRequest.Number, e.Issue.Number, of} {
		if n > 0 {
			return n
		}
	}
	for _, l := range f.lives {
		for _, id := range l.commits {
			if id == e.CheckRun.HeadSHA || id == e.CheckSuite.HeadSHA {
				return l.pull
			}
		}
	}
	return 0
}

// play runs all acts and returns the scenery after the second act and at the end.
// With want, it waits until the scenery is equal to it.
func (f *field) play(want []scenery) (seen []scenery) {
	f.Helper()
	look := func() {
		f.Helper()
		if want == nil {
			seen = append(seen, f.settled())
			return
		}
		f.until(want[len(seen)])
		seen = append(seen, want[len(seen)])
	}
	for i, acts := range f.acts {
		for _, a := range acts {
			f.does(a)
		}
		if i < 2 { // main moves after the plans of this act are shown
			l := f.lives[i]
			f.passes(l)
			_, err := f.forge.Merge(l.pull, githubtest.Merge, l.author)
			require.NoError(f, err)
			continue
		}
		if f.n%4 == 2 { // the daemon ends in the middle of it, and forgets all it had
			f.stop()
			require.NoError(f, os.RemoveAll(filepath.Join(f.dir, "mirror")))
			f.serve()
		}
	}
	f.forge.Settle()
	look()
	now := seen[0]
	for _, how := range []fate{closed, merged, queued} {
		for _, l := range f.lives {
			if l.fate != how {
				continue
			}
			var err error
			switch {
			case how == closed:
				err = f.forge.ClosePull(l.pull)
			case !now[l.pull].passed():
			case how == merged:
				_, err = f.forge.Merge(l.pull, []githubtest.Method{githubtest.Merge, githubtest.Squash, githubtest.Rebase}[l.pull%3],
					l.author)
			default:
				_, err = f.forge.Enqueue(l.pull)
			}
			require.NoError(f, err, "%s, pull request %d", how, l.pull)
		}
	}
	f.forge.Settle()
	look()
	if f.n > 0 {
		f.quiet()
	}
	require.Empty(f, f.forge.Violations())
	f.Logf("%d requests, %d deliveries", len(f.forge.Requests()), len(f.forge.Deliveries()))
	return seen
}

// does performs one action at the forge.
func (f *field) does(a act) {
	f.Helper()
	if f.n > 0 && (f.only == 0 || f.only == a.pull) && a.do == "push" && f.rand.IntN(4) == 0 {
		require.NoError(f, f.forge.LearnLate(a.pull, 1+f.rand.IntN(3)))
	}
	var err error
	switch a.do {
	case "open":
		require.NoError(f, f.git.SetRef("refs/heads/"+a.branch(), a.commits[0]))
		var n int
		n, err = f.forge.OpenPull(a.branch(), "Life "+strconv.Itoa(a.pull), a.author)
		require.Equal(f, a.pull, n)
	case "push":
		require.NoError(f, f.git.SetRef("refs/heads/"+a.branch(), a.commits[a.word]))
		err = f.forge.Sync()
	case "again":
		p, _ := f.forge.Pull(a.pull)
		if len(f.forge.Checks(p.Head)) > 0 { // there is nothing to click on before
			err = f.forge.RerunAll(p.Head, labtest.App)
		}
	case "approve":
		if a.author != labtest.ProjectAdmin {
			_, err = f.forge.Review(a.pull, labtest.ProjectAdmin, githubtest.Approved)
		}
	case "retitle":
		err = f.forge.Retitle(a.pull, fmt.Sprintf("Life %d, %d", a.pull, a.word))
	case "reopen":
		if err = f.forge.ClosePull(a.pull); err == nil {
			err = f.forge.ReopenPull(a.pull)
		}
	}
	require.NoError(f, err, "%s pull request %d", a.do, a.pull)
}

// passes waits until the checks on a pull request's head pass and its comment is
// there, so that a user can merge it.
func (f *field) passes(l *life) {
	f.Helper()
	var p portrait
	await.True(f, fmt.Sprintf("passing checks of pull request %d", l.pull), func() bool {
		p = f.portrait(l, nil)
		return p.passed() && p.Comments == 1
	}, func() any { return show(p) })
}

// scenery is the visible state of all pull requests, by number.
type scenery map[int]portrait

// portrait is the visible state of one pull request. It omits the commit of main
// that a plan was made with, because plans of different commits may be equal.
type portrait struct {
	Open     bool
	Merged   bool
	Head     string
	Checks   []string // of its head, and of its merge
	Comments int      // of ours
	Comment  string
}

// passed says whether both checks on the head do.
func (p portrait) passed() bool {
	n := 0
	for _, c := range p.Checks {
		if strings.HasPrefix(c, "head ") && strings.Contains(c, " completed success ") {
			n++
		}
	}
	return n == 2
}

// merges returns the pull requests by their merge commits.
func (f *field) merges() map[string]int {
	out := map[string]int{}
	for _, l := range f.lives {
		if p, _ := f.forge.Pull(l.pull); p.MergeCommit != "" {
			out[p.MergeCommit] = l.pull
		}
	}
	return out
}

func (f *field) scenery() scenery {
	merges, out := f.merges(), scenery{}
	for _, l := range f.lives {
		out[l.pull] = f.portrait(l, merges)
	}
	return out
}

var (
	mergedInto = regexp.MustCompile("merged into `[0-9a-f]+`")
	someID     = regexp.MustCompile(`\b[0-9a-f]{10,40}\b`)
	someCause  = regexp.MustCompile(`\bc[0-9a-f]{20}\b`)
	someTime   = regexp.MustCompile(`\b[0-9.]+ s\b`)
	fileLink   = regexp.MustCompile(`\]\(http[^)]*\)`) // names the server's port and the base
	liveState  = regexp.MustCompile(`live state of [0-9: -]+ UTC`)
	sincePush  = regexp.MustCompile(`(?m)^Since the last push: .*\n\n`) // depends on which plans were shown
)

func (f *field) portrait(l *life, merges map[string]int) portrait {
	p, _ := f.forge.Pull(l.pull)
	out := portrait{Open: p.Open, Merged: p.MergeCommit != "", Head: p.Head}
	said := func(text string) string {
		text = mergedInto.ReplaceAllString(text, "merged into main")
		text = fileLink.ReplaceAllString(text, "]")
		text = sincePush.ReplaceAllString(liveState.ReplaceAllString(text, "live state"), "")
		text = someTime.ReplaceAllString(someCause.ReplaceAllString(text, "CAUSE"), "some time")
		return someID.ReplaceAllStringFunc(text, func(id string) string {
			for commit, pull := range merges {
				if strings.HasPrefix(commit, id) {
					return fmt.Sprintf("MERGE-%d", pull)
				}
			}
			return id
		})
	}
	for of, commit := range map[string]string{"head": p.Head, "merge": p.MergeCommit} {
		if commit == p.Head && of == "merge" || commit == "" {
			continue
		}
		newest := map[string]githubtest.Check{}
		for _, c := range f.forge.Checks(commit) {
			newest[c.Name] = c
		}
		for _, name := range slices.Sorted(maps.Keys(newest)) {
			c := newest[name]
			if of == "merge" { // of a group of the queue, which was planned on what was before it
				c.ExternalID, c.Summary = "", ""
			}
			out.Checks = append(out.Checks,
				fmt.Sprintf("%s %s %s %s %s %q %v\n%s", of, c.Name, c.Status, c.Conclusion, c.ExternalID, c.Title, c.Annotations,
					said(c.Summary)))
		}
	}
	slices.Sort(out.Checks)
	for _, c := range f.forge.Comments(l.pull) {
		if c.Author == labtest.App+"[bot]" {
			out.Comments++
			out.Comment = said(c.Body)
		}
	}
	return out
}

// until waits until every pull request has its wanted state.
func (f *field) until(want scenery) {
	f.Helper()
	others := f.lives // that have another state
	await.True(f, fmt.Sprintf("the state without faults, BERTH_SCHEDULE=%d", f.n), func() bool {
		merges := f.merges()
		others = slices.DeleteFunc(slices.Clone(others), func(l *life) bool { return sameSight(want[l.pull], f.portrait(l, merges)) })
		if len(others) > 0 {
			return false
		}
		got := f.scenery() // a part that was equal may have changed since
		others = slices.DeleteFunc(slices.Clone(f.lives), func(l *life) bool { return sameSight(want[l.pull], got[l.pull]) })
		return len(others) == 0
	}, func() any {
		out, merges := "", f.merges()
		for _, l := range others {
			out += fmt.Sprintf("\nBERTH_SCHEDULE=%d/%d, of %s, %s, with %v:\n%s\nnot\n%s", f.n, l.pull, l.author, l.fate, f.actsOf(l),
				show(f.portrait(l, merges)), show(want[l.pull]))
		}
		return out
	})
}

func sameSight(a, b any) bool { return show(a) == show(b) }

func (f *field) actsOf(l *life) (out []string) {
	for i, acts := range f.acts {
		for _, a := range acts {
			if a.life == l {
				out = append(out, fmt.Sprintf("%d: %s %d", i, a.do, a.word))
			}
		}
	}
	return out
}

// looks is how often the open pull requests were listed.
func (f *field) looks() float64 {
	return reconciled(f, f.estates, reconciler.TaskPulls)
}

// quiet waits until several full reconciliations passed without a write to the
// forge.
func (f *field) quiet() {
	f.Helper()
	f.forge.SetStorm(nil)
	before, from := f.forge.Writes(), f.looks()
	await.True(f, "reconciliations without a write", func() bool {
		if now := f.forge.Writes(); now != before || len(f.estates.all[0].deliveries.Pending()) > 0 {
			before, from = now, f.looks()
		}
		return f.looks() >= from+3
	}, func() any {
		return fmt.Sprint(f.forge.Writes(), f.estates.all[0].deliveries.Pending(), "\n", lastLines(f.said))
	})
}

// settled returns the visible state after a replan, once all queues are empty.
func (f *field) settled() scenery {
	f.Helper()
	f.estates.all[0].running.Load().loop.Enqueue(reconciler.Item{Task: reconciler.TaskReplan})
	f.quiet()
	return f.scenery()
}

// TestLongSchedules injects faults into the events of a pull request, the forge's
// answers and the daemon. The pull request ends with the same checks and the same
// single comment as without faults, and Berth writes nothing afterwards.
// BERTH_SCHEDULE=7 runs the seventh field alone, and 7/12 injects faults only
// into pull request 12.
func TestLongSchedules(t *testing.T) {
	var fields []int
	for n := 1; n <= 20; n++ {
		fields = append(fields, n)
	}
	playSchedules(t, explore.Draw(t, 1, fields), 52)
}

// A schedule is the list of faults in the life of one pull request. A field is an
// estate with a forge. Every field has the same pull requests, with different
// schedules.
