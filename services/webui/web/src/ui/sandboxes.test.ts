import { expect, test } from "vitest";
import { SANDBOXES, sandboxOf, whyNot, whyNotWider } from "./sandboxes";

const allowed = (demanded: string): string[] =>
  SANDBOXES.map((one) => one.kind).filter((kind) => whyNot(kind, demanded) === null);

test("a session may be confined more than its agent demands, never less", () => {
  expect(allowed("local")).toEqual(["local", "bubblewrap", "docker"]);
  expect(allowed("bubblewrap")).toEqual(["bubblewrap", "docker"]);
  expect(allowed("docker")).toEqual(["docker"]);
  expect(whyNot("local", "docker")).toContain("weaker than docker");
});

test("who may not approve confines a session more, never less", () => {
  const kept = (now: string): string[] =>
    SANDBOXES.map((one) => one.kind).filter((kind) => whyNotWider(kind, now) === null);
  expect(kept("local")).toEqual(["local", "bubblewrap", "docker"]);
  expect(kept("bubblewrap")).toEqual(["bubblewrap", "docker"]);
  expect(kept("ssh")).toEqual(["ssh"]);
  expect(whyNotWider("local", "docker")).toContain("right to approve");
});

test("another machine is only for agents that ask for it, and nothing stands in for it", () => {
  expect(allowed("ssh")).toEqual(["ssh"]);
  expect(whyNot("ssh", "local")).toContain("profile");
});

test("a kind that this version does not know keeps its name", () => {
  expect(sandboxOf("firecracker").short).toBe("firecracker");
});
