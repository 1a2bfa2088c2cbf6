// Package labtest provides the estate of examples/lab to the demo and the tests:
// its files without instances, its users and its instances. No production program
// may import it; it must not know the daemon.
package labtest

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"syscall"

	"berth/examples"
	"berth/reconciler/plan"
	"berth/schema"
	"berth/webhooks/github/githubtest"
)

// Train is the instance that users change. Assembly is an instance of another
// tenant beside it, on the same controller.
var (
	Train    = schema.InstanceKey("physics", "lattice", "train")
	Assembly = schema.InstanceKey("biology", "genomes", "assembly")
	// Commons is a cluster of the platform that the projects of both share.
	Commons = schema.Key{Kind: schema.KindSharedRuntime, Name: "commons"}
)

// The files of the two instances.
const (
	TrainFile    = "tenants/physics/projects/lattice/instances/train.yaml"
	AssemblyFile = "tenants/biology/projects/genomes/instances/assembly.yaml"
)

// Users of examples/lab.
const (
	Administrator = "olga-ops"     // named by the daemon's configuration
	ProjectAdmin  = "anna-lattice" // every permission on Train
	ProjectMember = "ben-lattice"  // may create instances in Train's project, not change Train
	TenantOwner   = "petra-phys"   // owner of Train's tenant
	AssemblyOwner = "dora-genomes" // every permission on Assembly
	JobUser       = "anna"         // Unix user of ProjectAdmin, who submits jobs to Train
	AssemblyUser  = "dora"         // Unix user of AssemblyOwner
)

// What Berth shows to the test server of the forge.
const (
	App   = "berth-demo"
	Token = "demo-installation-token"
)

// Files returns the files of examples/lab without its instances, by path.
func Files() map[string]string {
	files := map[string]string{}
	for path, text := range all() {
		if !strings.Contains(path, "/instances/") {
			files[path] = text
		}
	}
	return files
}

// AssemblyYAML returns the document of Assembly.
func AssemblyYAML() string { return all()[AssemblyFile] }

// all returns every file of examples/lab. It is embedded, so reading cannot fail.
func all() map[string]string {
	files := map[string]string{}
	estate := examples.Lab()
	err := fs.WalkDir(estate, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := fs.ReadFile(estate, path)
		files[path] = string(data)
		return err
	})
	if err != nil {
		panic(err)
	}
	return files
}

// InstanceYAML returns the document of an instance with a number of workers.
func InstanceYAML(name string, workers int) string {
	return fmt.Sprintf(`apiVersion: berth/v1
kind: Instance
metadata:
  name: %s
spec:
  app: slurm
  version: 22-05
  display_name: Training cluster
  roles:
    worker:
      count: %d # workers
      sku: gpu-a100-2
      gpus: {type: a100, count: 2}
`, name, workers)
}

// PlanShown reports whether both checks and Berth's comment describe a pull
// request's head. A merge before that is a merge of a plan that was not reviewed.
func PlanShown(forge *githubtest.Server, pull int) bool {
	p, _ := forge.Pull(pull)
	done := map[string]bool{}
	for _, c := range forge.Checks(p.Head) {
		done[c.Name] = c.Status == "completed"
	}
	return done[plan.CheckValidate] && done[plan.CheckPlan] && slices.ContainsFunc(forge.Comments(pull), func(c githubtest.Comment) bool {
		return strings.HasSuffix(c.Author, "[bot]") && strings.Contains(c.Body, p.Head[:10])
	})
}

// FreePort returns an address of this machine that no other process gets until this one
// ends. Its socket is bound and does not listen, so the system gives the port to no process
// that asks for any free one. A process that knows the port can listen at it, also after a
// restart: net.Listen sets SO_REUSEADDR, which allows that beside a socket that does not listen.
func FreePort() (string, error) {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return "", err
	}
	if err := syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1); err != nil {
		return "", errors.Join(err, syscall.Close(fd))
	}
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		return "", errors.Join(err, syscall.Close(fd))
	}
	bound, err := syscall.Getsockname(fd)
	if err != nil {
		return "", errors.Join(err, syscall.Close(fd))
	}
	return fmt.Sprintf("127.0.0.1:%d", bound.(*syscall.SockaddrInet4).Port), nil
}
