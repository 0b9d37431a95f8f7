// Run by mongo-init. A replica set that is there already is left alone.
const members = [1, 2, 3].map((n) => ({ _id: n, host: `mongo-${n}:27017` }));
try {
  rs.status();
} catch (error) {
  if (error.codeName !== "NotYetInitialized") throw error;
  rs.initiate({ _id: "lcm", members });
}
