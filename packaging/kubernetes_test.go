package packaging

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"k8s.io/kubernetes/pkg/apis/apps"
	_ "k8s.io/kubernetes/pkg/apis/apps/install"
	apps_validation "k8s.io/kubernetes/pkg/apis/apps/validation"
	"k8s.io/kubernetes/pkg/apis/core"
	_ "k8s.io/kubernetes/pkg/apis/core/install"
	core_validation "k8s.io/kubernetes/pkg/apis/core/validation"
	"k8s.io/kubernetes/pkg/apis/networking"
	_ "k8s.io/kubernetes/pkg/apis/networking/install"
	networking_validation "k8s.io/kubernetes/pkg/apis/networking/validation"
	"k8s.io/kubernetes/pkg/apis/policy"
	_ "k8s.io/kubernetes/pkg/apis/policy/install"
	policy_validation "k8s.io/kubernetes/pkg/apis/policy/validation"
	sigs "sigs.k8s.io/yaml"
)

const namespace = "messaging"

// manifests are the objects of kubectl apply -k, decoded as strictly as by the API server: an
// unknown field or a wrong type is an error.
type manifests struct {
	services map[string]*core.Service
	config   *core.ConfigMap
	set      *apps.StatefulSet
	budget   *policy.PodDisruptionBudget
	traffic  *networking.NetworkPolicy
}

func readManifests(t *testing.T) manifests {
	t.Helper()
	var kustomization struct {
		APIVersion string   `json:"apiVersion"`
		Kind       string   `json:"kind"`
		Resources  []string `json:"resources"`
	}
	require.NoError(t, sigs.UnmarshalStrict([]byte(read(t, "kubernetes", "kustomization.yaml")), &kustomization))
	files, err := filepath.Glob("kubernetes/*.yaml")
	require.NoError(t, err)
	require.Len(t, kustomization.Resources, len(files)-1, "every file is a resource")

	m := manifests{services: map[string]*core.Service{}}
	decode := serializer.NewCodecFactory(legacyscheme.Scheme, serializer.EnableStrict).UniversalDecoder()
	for _, name := range kustomization.Resources {
		documents := yaml.NewDocumentDecoder(io.NopCloser(strings.NewReader(read(t, "kubernetes", name))))
		for {
			text := make([]byte, 1<<16)
			size, err := documents.Read(text)
			if err == io.EOF {
				break
			}
			require.NoError(t, err)
			object, _, err := decode.Decode(bytes.TrimSpace(text[:size]), nil, nil)
			require.NoError(t, err, name)
			m.add(t, object)
		}
	}
	return m
}

func (m *manifests) add(t *testing.T, object runtime.Object) {
	var errs field.ErrorList
	switch o := object.(type) {
	case *core.Service:
		o.Namespace = namespace
		if o.Spec.ClusterIP != "" {
			o.Spec.ClusterIPs = []string{o.Spec.ClusterIP} // the API server sets this
		}
		errs = core_validation.ValidateServiceCreate(o)
		m.services[o.Name] = o
	case *core.ConfigMap:
		o.Namespace = namespace
		errs = core_validation.ValidateConfigMap(o)
		m.config = o
	case *apps.StatefulSet:
		o.Namespace = namespace
		errs = apps_validation.ValidateStatefulSet(o, core_validation.PodValidationOptions{})
		m.set = o
	case *policy.PodDisruptionBudget:
		o.Namespace = namespace
		errs = policy_validation.ValidatePodDisruptionBudget(o, policy_validation.PodDisruptionBudgetValidationOptions{})
		m.budget = o
	case *networking.NetworkPolicy:
		o.Namespace = namespace
		errs = networking_validation.ValidateNetworkPolicy(o, networking_validation.NetworkPolicyValidationOptions{})
		m.traffic = o
	default:
		t.Fatalf("%T is not checked", o)
	}
	require.Empty(t, errs, "%T", object)
}

// TestManifests: the API server's own decoding, defaults and validation accept the manifests,
// and they refer to each other by the right names.
func TestManifests(t *testing.T) {
	m := readManifests(t)
	pod := labels.Set(m.set.Spec.Template.Labels)
	for name, s := range m.services {
		require.True(t, labels.SelectorFromSet(s.Spec.Selector).Matches(pod), name)
		for _, port := range s.Spec.Ports {
			require.Contains(t, portsOf(m.set), fmt.Sprint(port.Name, port.Port), name)
		}
	}
	headless := m.services[m.set.Spec.ServiceName]
	require.NotNil(t, headless, "the StatefulSet's service")
	require.Equal(t, core.ClusterIPNone, headless.Spec.ClusterIP)
	require.True(t, headless.Spec.PublishNotReadyAddresses, "brokers find each other before they are ready")
	require.Equal(t, apps.ParallelPodManagement, m.set.Spec.PodManagementPolicy)
	require.EqualValues(t, 3, m.set.Spec.Replicas)
	require.Equal(t, 1, m.budget.Spec.MaxUnavailable.IntValue())
	require.Equal(t, m.set.Spec.Selector, m.budget.Spec.Selector)
	require.Equal(t, *m.set.Spec.Selector, m.traffic.Spec.PodSelector)
	open := map[string]bool{}
	for _, rule := range m.traffic.Spec.Ingress {
		for _, port := range rule.Ports {
			open[port.Port.StrVal] = true
		}
	}
	require.Equal(t, map[string]bool{"nsq": true, "http": true}, open, "for everybody")

	spec := m.set.Spec.Template.Spec
	require.Greater(t, *spec.TerminationGracePeriodSeconds, spec.Containers[0].Lifecycle.PreStop.Sleep.Seconds+45-1)
	affinity := spec.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	require.Len(t, affinity, 1)
	require.Equal(t, m.set.Spec.Selector, affinity[0].LabelSelector)
	for path, probe := range map[string]*core.Probe{"/readyz": spec.Containers[0].ReadinessProbe, "/healthz": spec.Containers[0].LivenessProbe} {
		require.Equal(t, path, probe.HTTPGet.Path)
	}
	require.True(t, *spec.SecurityContext.RunAsNonRoot)
	require.True(t, *spec.Containers[0].SecurityContext.ReadOnlyRootFilesystem)
	require.Positive(t, spec.Containers[0].Resources.Limits.Memory().Cmp(resource.MustParse("1Gi")))
	require.Equal(t, "data", m.set.Spec.VolumeClaimTemplates[0].Name)
}

// TestGuideKustomization: the guide's kustomization replaces the image of the manifests, and its
// patches have a target.
func TestGuideKustomization(t *testing.T) {
	var k struct {
		Resources []string `json:"resources"`
		Images    []struct{ Name, NewName, NewTag string }
		Patches   []struct {
			Target struct{ Kind, Name string }
			Patch  string
		}
	}
	require.NoError(t, sigs.UnmarshalStrict([]byte(guide(t)["yaml kustomization"].script), &k))
	require.Equal(t, []string{"../packaging/kubernetes"}, k.Resources)
	set := readManifests(t).set
	image, _, _ := strings.Cut(set.Spec.Template.Spec.Containers[0].Image, ":")
	require.Equal(t, image, k.Images[0].Name)
	require.Equal(t, "StatefulSet "+set.Name, k.Patches[0].Target.Kind+" "+k.Patches[0].Target.Name)
	patched := regexp.MustCompile(`path: (\S+),`).FindStringSubmatch(k.Patches[0].Patch)
	require.NotNil(t, patched)
	require.Equal(t, "/spec/volumeClaimTemplates/0/spec/resources/requests/storage", patched[1])
	require.NotNil(t, set.Spec.VolumeClaimTemplates[0].Spec.Resources.Requests.Storage())
}

func portsOf(set *apps.StatefulSet) (ports []string) {
	for _, p := range set.Spec.Template.Spec.Containers[0].Ports {
		ports = append(ports, fmt.Sprint(p.Name, p.ContainerPort))
	}
	return ports
}

// TestStatefulSet runs the pods of the manifests: the image, with their arguments,
// environment, files and restrictions, in namespaces in which a name resolves once its pod has
// started. The pods found a cluster, survive a restart with another address, and stop in order
// within their time limit.
func TestStatefulSet(t *testing.T) {
	source, _ := release(t)
	m := readManifests(t)
	c := &pods{t: t, m: m, image: image(t, source, version), n: newNetwork(t, 3), dir: scratch(t), generations: []int{0, 0, 0}}
	c.certificates()
	// The first two wait for the third, whose name does not resolve yet.
	c.n.names(c.host, 0, 0)
	c.start(0)
	c.start(1)
	eventually(t, "the first pod waits", podman(t)+" logs "+c.name(0)+" 2>&1 | grep 'waiting for lockstep-2'")
	require.Error(t, c.probe(0, m.set.Spec.Template.Spec.Containers[0].ReadinessProbe))
	c.n.names(c.host, 0, 0, 0)
	c.start(2)
	for i := range 3 {
		c.ready(i)
	}
	_, err := try("", c.n.outside("curl -sSf -d one http://"+addressOf(0, 0)+":4151/pub?topic=orders"))
	require.Error(t, err, "no client may do anything before the first user")
	require.Contains(t, c.kubectlExec(), "lockstep-2", "the state of the cluster, for the first user")
	root := strings.TrimSpace(read(t, c.dir, "root.token"))
	c.bearer = "-H 'Authorization: Bearer " + root + "'"
	eventually(t, "every pod knows the user", c.n.outside("curl -sSf "+c.bearer+" http://"+addressOf(1, 0)+":4151/stats"))
	require.Equal(t, "OK", c.http(0, "/pub?topic=orders", "-d one"))
	require.Contains(t, c.http(1, "/v1/cluster", ""), `"replication_factor":3,"min_in_sync":2`)

	// A pod is replaced: its volume and its name remain, its address changes.
	c.stop(2)
	require.Equal(t, "OK", c.http(0, "/pub?topic=orders", "-d two"))
	c.n.readdress(2, 0, 1)
	c.generations[2] = 1
	c.n.names(c.host, c.generations...)
	c.start(2)
	c.ready(2)
	require.Equal(t, "OK", c.http(2, "/pub?topic=orders", "-d three"))
	eventually(t, "all are in sync again", c.n.outside(fmt.Sprintf(`curl -sSf `+c.bearer+` http://%s:4151/v1/cluster | grep -E '"isr":\["lockstep-[0-2]","lockstep-[0-2]","lockstep-[0-2]"\]'`, addressOf(0, 0))))
	require.Contains(t, c.http(1, "/lookup?topic=orders", ""), ".lockstep-brokers.messaging.svc:4151")
	for i := range 3 {
		c.stop(i)
	}
}

// kubectlExec runs the guide's commands in pods, as podman exec, and returns their output.
func (c *pods) kubectlExec() (out string) {
	c.t.Helper()
	commands := 0
	for line := range strings.Lines(guide(c.t)["kubectl"].script) {
		if command, found := strings.CutPrefix(line, "kubectl -n $NAMESPACE exec "); found {
			out += sh(c.t, c.dir, podman(c.t)+" exec "+strings.Replace(command, " -- ", " ", 1))
			commands++
		}
	}
	require.Equal(c.t, 2, commands)
	return out
}

// pods are the pods of the StatefulSet, as containers.
type pods struct {
	t           *testing.T
	m           manifests
	image       string
	n           *network
	dir         string
	generations []int
	bearer      string // curl's flag with the token of the first user
}

func (c *pods) name(i int) string { return fmt.Sprintf("%s-%d", c.m.set.Name, i) }

// host returns the name of a pod in the headless service.
func (c *pods) host(i int) string {
	return fmt.Sprintf("%s.%s.%s.svc", c.name(i), c.m.set.Spec.ServiceName, namespace)
}

// certificates creates the secret lockstep-tls with the guide's commands.
func (c *pods) certificates() {
	sh(c.t, c.dir, guide(c.t)["kubernetes"].script)
	for _, name := range []string{"ca.crt", "tls.crt", "tls.key"} {
		require.NoError(c.t, os.Chmod(filepath.Join(c.dir, name), 0o440))
		require.NoError(c.t, os.Chown(filepath.Join(c.dir, name), 0, int(*c.m.set.Spec.Template.Spec.SecurityContext.FSGroup)))
	}
}

// start runs a pod like the kubelet.
func (c *pods) start(i int) {
	c.t.Helper()
	t, p, spec := c.t, podman(c.t), c.m.set.Spec.Template.Spec
	nsqd, security := spec.Containers[0], spec.SecurityContext
	container(t, c.name(i))
	flags := []string{
		"--network ns:/run/netns/" + c.n.namespace(i), "--no-hosts -v " + c.n.hosts + ":/etc/hosts:ro",
		fmt.Sprintf("--user %d:%d", *security.RunAsUser, *security.RunAsGroup), fmt.Sprintf("--group-add %d", *security.FSGroup),
		"--read-only --security-opt no-new-privileges", limits,
		fmt.Sprintf("--memory %d", nsqd.Resources.Limits.Memory().Value()),
	}
	for _, capability := range nsqd.SecurityContext.Capabilities.Drop {
		flags = append(flags, "--cap-drop "+string(capability))
	}
	values := map[string]string{}
	for _, e := range nsqd.Env {
		value := e.Value
		if e.ValueFrom != nil {
			value = map[string]string{"metadata.name": c.name(i), "metadata.namespace": namespace}[e.ValueFrom.FieldRef.FieldPath]
			require.NotEmpty(t, value, e.Name)
		}
		for name, v := range values { // the variables before it
			value = strings.ReplaceAll(value, "$("+name+")", v)
		}
		require.NotContains(t, value, "$(", e.Name)
		values[e.Name] = value
		flags = append(flags, fmt.Sprintf("-e %s='%s'", e.Name, value))
	}
	for _, mount := range nsqd.VolumeMounts {
		from := c.volume(i, mount.Name)
		if from == "" {
			continue
		}
		if mount.SubPath != "" {
			from = filepath.Join(from, mount.SubPath)
		}
		if mount.ReadOnly {
			mount.MountPath += ":ro"
		}
		flags = append(flags, "-v "+from+":"+mount.MountPath)
	}
	sh(t, "", fmt.Sprintf("%s run -d --name %s %s %s %s", p, c.name(i), strings.Join(flags, " "), c.image, strings.Join(nsqd.Args, " ")))
}

// volume returns a directory with the content of a pod's volume, "" for an optional one that
// does not exist.
func (c *pods) volume(i int, name string) string {
	c.t.Helper()
	dir := filepath.Join(c.dir, c.name(i), name)
	require.NoError(c.t, os.MkdirAll(dir, 0o755))
	owner := int(*c.m.set.Spec.Template.Spec.SecurityContext.FSGroup)
	for _, claim := range c.m.set.Spec.VolumeClaimTemplates {
		if claim.Name == name { // only fsGroup gives access to it
			require.NoError(c.t, os.Chown(dir, 0, owner))
			require.NoError(c.t, os.Chmod(dir, 0o2775))
			return dir
		}
	}
	for _, v := range c.m.set.Spec.Template.Spec.Volumes {
		switch {
		case v.Name != name:
		case v.ConfigMap != nil:
			require.Equal(c.t, c.m.config.Name, v.ConfigMap.Name)
			for file, text := range c.m.config.Data {
				require.NoError(c.t, os.WriteFile(filepath.Join(dir, file), []byte(text), 0o644))
			}
			return dir
		case v.Secret != nil && v.Secret.Optional != nil && *v.Secret.Optional:
			return ""
		case v.Secret != nil:
			require.Equal(c.t, "lockstep-tls", v.Secret.SecretName)
			return c.dir
		}
	}
	c.t.Fatalf("no volume %s", name)
	return ""
}

// probe sends a probe like the kubelet.
func (c *pods) probe(i int, probe *core.Probe) error {
	port := 0
	for _, p := range c.m.set.Spec.Template.Spec.Containers[0].Ports {
		if p.Name == probe.HTTPGet.Port.StrVal {
			port = int(p.ContainerPort)
		}
	}
	_, err := try("", c.n.outside(fmt.Sprintf("curl -sSf -m %d http://%s:%d%s", probe.TimeoutSeconds, addressOf(i, c.generations[i]), port, probe.HTTPGet.Path)))
	return err
}

// ready waits until all probes succeed.
func (c *pods) ready(i int) {
	c.t.Helper()
	spec := c.m.set.Spec.Template.Spec.Containers[0]
	for _, probe := range []*core.Probe{spec.StartupProbe, spec.LivenessProbe, spec.ReadinessProbe} {
		eventually(c.t, "answers "+probe.HTTPGet.Path, c.n.outside("curl -sSf http://"+addressOf(i, c.generations[i])+":4151"+probe.HTTPGet.Path))
		require.NoError(c.t, c.probe(i, probe))
	}
}

func (c *pods) http(i int, path, flags string) string {
	c.t.Helper()
	return sh(c.t, "", c.n.outside(fmt.Sprintf("curl -sS --fail-with-body %s %s 'http://%s:4151%s'", c.bearer, flags, addressOf(i, c.generations[i]), path)))
}

// stop ends a pod with SIGTERM; a kill fails the test.
func (c *pods) stop(i int) {
	c.t.Helper()
	spec, p := c.m.set.Spec.Template.Spec, podman(c.t)
	grace := *spec.TerminationGracePeriodSeconds - spec.Containers[0].Lifecycle.PreStop.Sleep.Seconds
	sh(c.t, "", fmt.Sprintf("%s stop -t %d %s", p, grace, c.name(i)))
	require.Equal(c.t, "0\n", sh(c.t, "", p+" inspect --format '{{.State.ExitCode}}' "+c.name(i)))
	sh(c.t, "", p+" rm "+c.name(i))
}
